-- Writes down a schedule's next time, which may be infinity, or a problem that keeps it from being worked out or from firing; a time that
-- was due is then recorded as missed. Answers whether the version was still the current one. For holdfast_worker. Locks: the schedule.
create or replace function queues.plan_schedule(name text, version bigint, next_at timestamptz, problem text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
begin
  if plan_schedule.next_at is null or plan_schedule.next_at < timestamptz '1970-01-01 00:00Z' then
    raise exception using errcode = 'QF400', message = 'next_at must be a time since 1970, or infinity';
  end if;
  select s.* into _schedule from queues.schedule s
  where s.name = plan_schedule.name and s.version = plan_schedule.version and s.paused_at is null and s.orphaned_at is null
  for update;
  if not found then
    return false;
  end if;
  if plan_schedule.problem is not null and _schedule.next_at <= _now then
    insert into queues.schedule_firing (schedule, nominal_at, decided_at, decision)
    values (_schedule.name, _schedule.next_at, _now, 'missed') on conflict do nothing;
  end if;
  update queues.schedule s
  set version = s.version + 1, next_at = plan_schedule.next_at, decided_at = _now, problem = left(plan_schedule.problem, 2000)
  where s.name = plan_schedule.name;
  return true;
end
$$;

comment on function queues.plan_schedule(text, bigint, timestamptz, text) is
  'Writes down a schedule''s next time, or a problem that keeps it from being worked out or from firing.';
