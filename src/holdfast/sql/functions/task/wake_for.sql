-- Wakes idle workers for one task, if it is due within six seconds: an idle worker looks every five seconds.
-- Internal.
create or replace function queues.wake_for(task_id uuid)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select queues.wake(t.queue, t.type, queues.clock())
  from queues.task t join queues.ready r on r.task_id = t.task_id
  where t.task_id = wake_for.task_id and r.run_at <= queues.clock() + interval '6 seconds'
$$;

comment on function queues.wake_for(uuid) is 'Wakes idle workers for one task, if it is due within six seconds.';
