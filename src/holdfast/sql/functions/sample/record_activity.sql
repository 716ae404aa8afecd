-- Adds what a worker has counted since its last report: [{"queue", "type", "succeeded", "failed", "dead_letter",
-- "cancelled", "retrying", "run_seconds", "run_counts", "delay_counts"}]. The time is that of the report. A type that
-- no worker has declared counts for its queue only, and a queue without lanes and declared types for the total only, so
-- that a worker cannot make the table grow without bound.
-- For holdfast_worker. Locks: the rows of this minute, quarter of an hour and three hours, in the order of their key;
-- other reports hold them for a moment.
create or replace function queues.record_activity(activity jsonb)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('activity', activity);
  _now constant timestamptz := queues.clock();
  _buckets constant integer := cardinality(queues.activity_limits()) + 1;
begin
  if exists (
    select from jsonb_to_recordset(activity) as g(succeeded bigint, failed bigint, dead_letter bigint, cancelled bigint,
      retrying bigint, run_seconds double precision, run_counts bigint[], delay_counts bigint[])
    where least(g.succeeded, g.failed, g.dead_letter, g.cancelled, g.retrying) < 0
      or greatest(g.succeeded, g.failed, g.dead_letter, g.cancelled, g.retrying) > 1000000000
      or not coalesce(g.run_seconds, 0) between 0 and 1e12
      or cardinality(g.run_counts) is distinct from _buckets or cardinality(g.delay_counts) is distinct from _buckets
      or 0 > any (g.run_counts || g.delay_counts) or 1000000000 < any (g.run_counts || g.delay_counts))
  then
    raise exception using errcode = 'QF400',
      message = format('an element of activity has counts that are not %s numbers between 0 and a billion', _buckets);
  end if;

  insert into queues.activity as a (at, period, queue, type, succeeded, failed, dead_letter, cancelled, retrying,
    run_seconds, run_counts, delay_counts)
  with given as (
    select g.*, exists (select from queues.lane l where l.queue = g.queue)
        or exists (select from queues.task_type d where d.queue = g.queue) as known_queue,
      exists (select from queues.task_type d where d.type = g.type) as known_type
    from jsonb_to_recordset(activity) as g(queue text, type text, succeeded bigint, failed bigint,
      dead_letter bigint, cancelled bigint, retrying bigint, run_seconds double precision, run_counts bigint[],
      delay_counts bigint[])),
  spread as materialized (
    select k.queue as of_queue, k.type as of_type, g.* from given g
    cross join lateral (
      select g.queue, g.type where g.known_queue and g.known_type
      union all select g.queue, '' where g.known_queue
      union all select '', '') k(queue, type)),
  added as (
    select s.of_queue, s.of_type, sum(s.succeeded) as succeeded, sum(s.failed) as failed,
      sum(s.dead_letter) as dead_letter, sum(s.cancelled) as cancelled, sum(s.retrying) as retrying,
      sum(s.run_seconds) as run_seconds
    from spread s group by 1, 2),
  runs as (
    select b.of_queue, b.of_type, array_agg(b.run order by b.n) as run, array_agg(b.delay order by b.n) as delay
    from (
      select s.of_queue, s.of_type, u.n, sum(u.run)::bigint as run, sum(u.delay)::bigint as delay
      from spread s cross join unnest(s.run_counts, s.delay_counts) with ordinality u(run, delay, n)
      group by 1, 2, 3) b
    group by 1, 2)
  select date_bin(make_interval(mins => p.period), _now, '2000-01-01 00:00:00+00'), p.period, t.of_queue, t.of_type,
    coalesce(t.succeeded, 0), coalesce(t.failed, 0), coalesce(t.dead_letter, 0), coalesce(t.cancelled, 0),
    coalesce(t.retrying, 0), coalesce(t.run_seconds, 0), r.run, r.delay
  from added t join runs r using (of_queue, of_type) cross join (values (1), (15), (180)) p(period)
  order by p.period, t.of_queue, t.of_type
  on conflict (period, queue, type, at) do update
  set succeeded = a.succeeded + excluded.succeeded, failed = a.failed + excluded.failed,
    dead_letter = a.dead_letter + excluded.dead_letter, cancelled = a.cancelled + excluded.cancelled,
    retrying = a.retrying + excluded.retrying, run_seconds = a.run_seconds + excluded.run_seconds,
    run_counts = array(select coalesce(u.x, 0) + u.y from unnest(a.run_counts, excluded.run_counts) u(x, y)),
    delay_counts = array(select coalesce(u.x, 0) + u.y from unnest(a.delay_counts, excluded.delay_counts) u(x, y));
end
$$;

comment on function queues.record_activity(jsonb) is 'Adds what a worker has counted since its last report.';
