-- Stores a schedule's next time, which may be infinity, or a problem that keeps it from firing. A time that was due is
-- then recorded as missed. Returns whether the schedule needed it: false for an outdated version, and for what
-- queues.due_schedules does not list. Refuses a time that is not later or that the schedule cannot have.
-- Internal: called by decide_schedules. Locks: the schedule, without waiting.
create or replace function queues.plan_schedule(
  name text, namespace text, version bigint, next_at timestamptz, problem text default null)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _grace constant interval := '1 minute';
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
  _after timestamptz;
begin
  select s.* into _schedule from queues.schedule s
  where s.name = plan_schedule.name and s.namespace = plan_schedule.namespace and s.version = plan_schedule.version
    and s.paused_at is null and s.orphaned_at is null
  for update skip locked;
  if not found then
    return false;
  end if;
  -- After the clock was set back, the leader counts from the time of its query.
  _after := case when _schedule.decided_at > _now then _now - _grace
    when _schedule.next_at is null then _schedule.plan_after
    when plan_schedule.problem is not null and _schedule.next_at <= _now then _schedule.next_at end;
  if _after is null then
    return false;
  elsif plan_schedule.next_at is null or plan_schedule.next_at <= _after
    or not queues.is_schedule_time(_schedule, plan_schedule.next_at)
  then
    raise exception using errcode = 'QF400',
      message = format('next_at must be infinity, or a time of schedule %s after %s', to_json(name), _after);
  end if;
  if plan_schedule.problem is not null and _schedule.next_at <= _now then
    insert into queues.schedule_firing (schedule, namespace, nominal_at, decided_at, decision)
    values (_schedule.name, _schedule.namespace, _schedule.next_at, _now, 'missed') on conflict do nothing;
  end if;
  update queues.schedule s
  set version = s.version + 1, next_at = plan_schedule.next_at, decided_at = _now,
    problem = left(plan_schedule.problem, 2000)
  where s.name = _schedule.name and s.namespace = _schedule.namespace;
  return true;
end
$$;

comment on function queues.plan_schedule(text, text, bigint, timestamptz, text) is
  'Stores a schedule''s next time, which may be infinity, or a problem that keeps it from firing.';
