-- Moves a waiting task to another time and returns its status; other tasks are not changed.
-- For holdfast_client (tasks of its namespace), holdfast_process and holdfast_operator. Locks: the ready row.
create or replace function queues.reschedule(task_id uuid, run_at timestamptz, reason text default null)
returns text
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
  perform queues.check_task_owner(task_id);
  perform queues.parse_time('run_at', coalesce(to_jsonb(reschedule.run_at) #>> '{}', ''), _now);
  perform queues.move_waiting(task_id, run_at, reason, _now);
  return queues.status_now(task_id);
end
$$;

comment on function queues.reschedule(uuid, timestamptz, text) is
  'Moves a waiting task to another time and returns its status; other tasks are not changed.';
