-- Moves a waiting task to another time and answers its status; a task that does not wait is left as it is.
-- For holdfast_client (its own tasks), holdfast_process and holdfast_operator. Locks: the ready row.
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
  _former queues.ready;
begin
  perform queues.own_task(task_id);
  reason := left(reason, 2000);
  perform queues.parse_time('run_at', coalesce(to_jsonb(reschedule.run_at) #>> '{}', ''), _now);
  for _try in 1..100 loop
    delete from queues.ready r where r.task_id = reschedule.task_id returning r.* into _former;
    exit when found;
    if not exists (select from queues.ready r where r.task_id = reschedule.task_id) then
      return queues.status_now(task_id);
    end if;
    perform queues.give_up_after(_try, task_id);
  end loop;

  -- A new row, not an update: claims rely on ready rows never moving.
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  values (task_id, run_at, _former.lane_id, _former.attempt);
  insert into queues.act (task_id, act, occurred_at, actor, reason, data)
  values (task_id, 'rescheduled', _now, session_user, reason, jsonb_build_object('from', _former.run_at, 'to', run_at));
  perform queues.wake_for(task_id);
  return queues.status_now(task_id);
end
$$;

comment on function queues.reschedule(uuid, timestamptz, text) is
  'Moves a waiting task to another time and answers its status; a task that does not wait is left as it is.';
