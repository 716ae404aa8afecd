-- Returns the schedules to decide on now, the longest due first. If plan_from is given, the next time after it is
-- needed (plan_schedule); otherwise the times from next_at up to now are due (fire_schedule), the newest max_times of
-- them. None on a shard other than the first: a schedule fires once, not once per shard.
-- For holdfast_worker. Locks: none.
create or replace function queues.due_schedules(max_schedules integer default 100)
returns table (name text, namespace text, version bigint, cron text, every interval, anchor timestamptz, tz text,
  plan_from timestamptz, next_at timestamptz, max_times integer, now timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if max_schedules is null or max_schedules not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_schedules must be between 1 and 10000';
  end if;
  if not queues.is_first_shard() then
    return;
  end if;
  -- A time decided later than now was decided before the clock was set back: unchanged, it might delay the schedule for
  -- as long.
  return query
  select s.name, s.namespace, s.version, s.cron, s.every, s.anchor, s.tz,
    case when s.decided_at > _now then _now when s.next_at is null then s.plan_after end,
    nullif(s.next_at, 'infinity'), case s.catch_up when 'all' then s.catch_up_limit else 1 end, _now
  from queues.schedule s
  where (s.name, s.namespace) in (
    select t.name, t.namespace from queues.schedule t
    where t.paused_at is null and t.orphaned_at is null and t.next_at is null
    union all
    select t.name, t.namespace from queues.schedule t
    where t.paused_at is null and t.orphaned_at is null and t.next_at <= _now
    union all
    select t.name, t.namespace from queues.schedule t
    where t.paused_at is null and t.orphaned_at is null and t.decided_at > _now)
  order by s.next_at nulls first, s.name, s.namespace limit max_schedules;
end
$$;

comment on function queues.due_schedules(integer) is 'Returns the schedules to decide on now, the longest due first.';
