-- Makes a waiting task due now and returns whether it waited for a later time. For the handlers of a business process,
-- which know the supervisor that waits for them: the right to execute this function is the authority, in any session. A
-- missing task is not an error.
-- For holdfast_process. Locks: the ready row.
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
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
begin
  if not exists (select from queues.ready r where r.task_id = nudge.task_id and r.run_at > _now) then
    return false;
  end if;
  return queues.move_waiting(task_id, _now, 'nudged', _now);
end
$$;

comment on function queues.nudge(uuid) is
  'Makes a waiting task due now and returns whether it waited for a later time.';
