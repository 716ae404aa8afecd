-- Makes waiting tasks due now, skipping those that another transaction holds. The supervisor of a process that is
-- skipped is found by find_orphans, which looks at all processes in turn.
-- Internal: called by call_error_handlers and find_orphans. Locks: ready rows, without waiting.
create or replace function queues.nudge_waiting(task_ids uuid[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _task_id uuid;
begin
  for _task_id in
    select r.task_id from queues.ready r where r.task_id = any (task_ids) and r.run_at > now order by r.task_id
    for update skip locked
  loop
    perform queues.move_waiting(_task_id, now, 'nudged', now);
  end loop;
end
$$;

comment on function queues.nudge_waiting(uuid[], timestamptz) is
  'Makes waiting tasks due now, skipping those that another transaction holds.';
