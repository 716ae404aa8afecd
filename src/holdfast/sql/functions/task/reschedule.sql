-- Moves a waiting task to another time and returns its status; other tasks are not changed.
-- For holdfast_client (tasks of its namespace), holdfast_process and holdfast_operator. Locks: the ready row, by
-- lock_task; then as move_waiting.
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
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _place text;
  _status text;
begin
  perform queues.check_task_owner(task_id);
  perform queues.parse_time('run_at', coalesce(to_jsonb(reschedule.run_at) #>> '{}', ''), _now);
  select l.place, l.status into _place, _status from queues.lock_task(task_id, array['ready']) l;
  if _place is distinct from 'ready' then
    return coalesce(_status, queues.status_now(task_id));
  end if;
  perform queues.move_waiting(task_id, run_at, reason, _now);
  return queues.status_now(task_id);
end
$$;

comment on function queues.reschedule(uuid, timestamptz, text) is
  'Moves a waiting task to another time and returns its status; other tasks are not changed.';
