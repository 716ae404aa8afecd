-- Lets a paused schedule fire again from now on, and returns whether it was paused. Times during the pause are not
-- caught up.
-- For holdfast_client (schedules of its namespace) and holdfast_operator. Locks: the schedule.
create or replace function queues.resume_schedule(name text, reason text default null, namespace text default null)
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
  if _schedule.paused_at is null then
    return false;
  end if;
  update queues.schedule s
  set version = s.version + 1, paused_at = null, paused_by = null, pause_reason = null, next_at = null,
    plan_after = _now, decided_at = _now
  where s.name = _schedule.name and s.namespace = _schedule.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
  values (name, _schedule.namespace, 'resumed', _now, queues.actor(), reason);
  return true;
end
$$;

comment on function queues.resume_schedule(text, text, text) is
  'Lets a paused schedule fire again from now on, and returns whether it was paused.';
