-- Stops a schedule from firing until it is resumed, and returns whether it was active.
-- For holdfast_client (schedules of its namespace) and holdfast_operator. Locks: the schedule.
create or replace function queues.pause_schedule(name text, reason text default null, namespace text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
begin
  reason := left(reason, 2000);
  _schedule := queues.lock_own_schedule(name, namespace);
  if _schedule.paused_at is not null then
    return false;
  end if;
  update queues.schedule s
  set version = s.version + 1, paused_at = _now, paused_by = queues.actor(), pause_reason = pause_schedule.reason
  where s.name = _schedule.name and s.namespace = _schedule.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
  values (name, _schedule.namespace, 'paused', _now, queues.actor(), reason);
  return true;
end
$$;

comment on function queues.pause_schedule(text, text, text) is
  'Stops a schedule from firing until it is resumed, and returns whether it was active.';
