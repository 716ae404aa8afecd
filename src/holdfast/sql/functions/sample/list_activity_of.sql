-- Returns the activity of a queue, of a type, or of all, in steps: attempts by how they ended, percentiles of the delay
-- until start and of the run time, and the waiting and running tasks. A step without activity has no row. A step is at
-- least a minute, and a quarter of an hour if since is more than two hours.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_activity_of(
  queue text default null, type text default null, since interval default '1 hour', step interval default '1 minute')
returns table (
  at timestamptz, seconds double precision, succeeded bigint, failed bigint, retrying bigint, cancelled bigint,
  delay_p50 double precision, delay_p99 double precision, run_p50 double precision, run_p99 double precision,
  due bigint, running bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _period constant integer := case when since > interval '2 hours' then 15 else 1 end;
  _step interval;
  _from timestamptz;
  _queues text[] := array[coalesce(list_activity_of.queue, '')];
begin
  if since is null or since not between interval '1 minute' and interval '2 days' then
    raise exception using errcode = 'QF400', message = 'since must be between 1 minute and 2 days';
  elsif step is null or step not between interval '1 minute' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'step must be between 1 minute and 1 day';
  end if;
  -- In seconds: date_bin refuses months, also those that negative days outweigh.
  _step := greatest(make_interval(secs => extract(epoch from step)), make_interval(mins => _period));
  _from := date_bin(_step, queues.clock() - since, '2000-01-01 00:00:00+00');
  if list_activity_of.queue is null and list_activity_of.type is not null then
    -- All queues in which tasks of the type ran, found with one look into the index for each queue.
    _queues := array(
      with recursive known(queue) as (
        select min(a.queue) from queues.activity a where a.period = _period and a.queue > ''
        union all
        select (select min(a.queue) from queues.activity a where a.period = _period and a.queue > k.queue)
        from known k where k.queue is not null)
      select k.queue from known k where k.queue is not null);
  end if;
  return query
  with chosen as (
    select a.* from unnest(_queues) q(queue)
    cross join lateral (
      select a.* from queues.activity a
      where a.period = _period and a.queue = q.queue and a.type = coalesce(list_activity_of.type, '')
        and a.at >= _from offset 0) a),
  counts as (
    select b.at, array_agg(b.run order by b.n) as run, array_agg(b.delay order by b.n) as delay
    from (
      select date_bin(_step, c.at, '2000-01-01 00:00:00+00') as at, u.n, sum(u.run)::bigint as run,
        sum(u.delay)::bigint as delay
      from chosen c cross join unnest(c.run_counts, c.delay_counts) with ordinality u(run, delay, n)
      group by 1, 2) b
    group by 1),
  ends as (
    select date_bin(_step, c.at, '2000-01-01 00:00:00+00') as at, sum(c.succeeded)::bigint as succeeded,
      sum(c.failed + c.dead_letter)::bigint as failed, sum(c.retrying)::bigint as retrying,
      sum(c.cancelled)::bigint as cancelled,
      (array_agg(c.due order by c.at desc) filter (where c.due is not null))[1] as due,
      (array_agg(c.running order by c.at desc) filter (where c.running is not null))[1] as running
    from chosen c group by 1)
  select e.at, greatest(1, extract(epoch from least(e.at + _step, queues.clock()) - e.at))::double precision,
    e.succeeded, e.failed, e.retrying, e.cancelled, queues.percentile_of(c.delay, 0.5),
    queues.percentile_of(c.delay, 0.99), queues.percentile_of(c.run, 0.5), queues.percentile_of(c.run, 0.99),
    e.due, e.running
  from ends e left join counts c using (at) order by e.at;
end
$$;

comment on function queues.list_activity_of(text, text, interval, interval) is
  'Returns the activity of a queue, of a type, or of all, in steps.';
