-- Returns the schedules to decide on now, with queues.decide_schedules. Namespaces take turns, beginning with the one
-- that has waited longest for a decision; each has its longest due schedule decided first. If plan_from is given, the
-- next time after it is needed; otherwise the times from next_at up to now are due, the newest max_times of them. None
-- on a shard other than the first: a schedule fires once, not once per shard.
-- For holdfast_worker. Locks: none.
create or replace function queues.due_schedules(max_schedules integer default 100)
returns table (name text, namespace text, version bigint, cron text, every interval, anchor timestamptz, tz text,
  plan_from timestamptz, next_at timestamptz, max_times integer, now timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
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
  select (d.s).name, (d.s).namespace, (d.s).version, (d.s).cron, (d.s).every, (d.s).anchor, (d.s).tz,
    case when (d.s).decided_at > _now then _now when (d.s).next_at is null then (d.s).plan_after end,
    nullif((d.s).next_at, 'infinity'), case (d.s).catch_up when 'all' then (d.s).catch_up_limit else 1 end, _now
  from queues.namespaces_with_schedules() o(namespace)
  cross join lateral (
    select max(t.decided_at) as at from queues.schedule t where t.namespace = o.namespace) last_decision
  cross join lateral (
    select c.s, row_number() over (order by coalesce((c.s).next_at, (c.s).plan_after), (c.s).name) as turn from (
      (select t as s from queues.schedule t
      where t.paused_at is null and t.orphaned_at is null and t.namespace = o.namespace and t.next_at is null
      limit max_schedules)
      union all
      (select t from queues.schedule t
      where t.paused_at is null and t.orphaned_at is null and t.namespace = o.namespace and t.next_at <= _now
      order by t.next_at limit max_schedules)
      union all
      (select t from queues.schedule t
      where t.paused_at is null and t.orphaned_at is null and t.namespace = o.namespace and t.decided_at > _now
        and t.next_at > _now
      limit max_schedules)) c
    order by turn limit max_schedules) d
  order by d.turn, last_decision.at, (d.s).namespace limit max_schedules;
end
$$;

comment on function queues.due_schedules(integer) is
  'Returns the schedules to decide on now; namespaces take turns, the longest due schedule of each first.';
