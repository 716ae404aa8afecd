-- Makes a waiting task due now and returns whether it waited for a later time. For the handlers of a business process,
-- which know the supervisor that waits for them: the right to execute this function is the authority, in any session. A
-- missing task is not an error.
-- For holdfast_process. Locks: the ready row, by lock_task.
create or replace function queues.nudge(task_id uuid)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _run_at timestamptz;
begin
  if not exists (select from queues.ready r where r.task_id = nudge.task_id and r.run_at > _now) then
    return false;
  end if;
  select l.run_at into _run_at from queues.lock_task(task_id, array['ready']) l where l.place = 'ready';
  if (_run_at > _now) is not true then
    return false;
  end if;
  perform queues.move_waiting(task_id, _now, 'nudged', _now);
  return true;
end
$$;

comment on function queues.nudge(uuid) is
  'Makes a waiting task due now and returns whether it waited for a later time.';
