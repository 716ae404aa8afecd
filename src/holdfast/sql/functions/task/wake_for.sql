-- Wakes idle workers for one task that has just become due.
-- Internal.
create or replace function queues.wake_for(task_id uuid)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select queues.wake(array_agg(row(1, t.task_id, t.type, t.queue, t.executor, t.priority, r.run_at, t.max_attempts,
    null, null, null, null, null, null)::queues.new_task), queues.clock())
  from queues.task t join queues.ready r on r.task_id = t.task_id where t.task_id = wake_for.task_id
$$;

comment on function queues.wake_for(uuid) is 'Wakes idle workers for one task that has just become due.';
