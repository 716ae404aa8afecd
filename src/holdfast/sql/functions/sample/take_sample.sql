-- Takes a sample, unless there is one of the same ten seconds, and returns whether it did. Counts the waiting and the
-- running tasks, in all and per queue and type, only if asked, because that reads all of them. Deletes samples and
-- activity older than two days, and activity per minute older than two hours. Corrects ids of transactions that another
-- cluster has given, from which the database was restored.
-- For holdfast_worker and holdfast_operator. Locks: activity of this minute, in the order of its key; the row of
-- queues.event_order; old samples and activity, skipping those that other transactions hold.
create or replace function queues.take_sample(count_tasks boolean default true)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _taken_at constant timestamptz := date_bin('10 seconds', _now, '2000-01-01 00:00:00+00');
  _due bigint;
  _scheduled bigint;
  _running bigint;
  _delays double precision[];
  _next constant bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  if exists (
    select from queues.sample s where s.taken_at = _taken_at and (s.due is not null or not coalesce(count_tasks, true)))
  then
    return false;
  end if;
  if coalesce(count_tasks, true) then
    -- One pass over the waiting and one over the running tasks.
    with counted as (
      select r.lane_id, count(*) filter (where r.run_at <= _now) as due, count(*) as waiting, 0::bigint as running
      from queues.ready r group by r.lane_id
      union all
      select l.lane_id, 0, 0, count(*) from queues.lease l group by l.lane_id),
    per_lane as (
      select l.queue, l.type, c.due, c.waiting, c.running from counted c left join queues.lane l using (lane_id)),
    kept as (
      insert into queues.activity as a (at, period, queue, type, due, running)
      select date_bin(make_interval(mins => p.period), _now, '2000-01-01 00:00:00+00'), p.period, k.queue, k.type,
        k.due, k.running
      from (
        select c.queue, case grouping(c.type) when 0 then c.type else '' end as type, sum(c.due) as due,
          sum(c.running) as running
        from per_lane c where c.queue is not null
        group by grouping sets ((c.queue, c.type), (c.queue)) having grouping(c.type) = 1 or c.type <> '') k
      cross join (values (1), (15)) p(period)
      where k.due > 0 or k.running > 0
      order by p.period, k.queue, k.type
      on conflict (period, queue, type, at) do update set due = excluded.due, running = excluded.running)
    select coalesce(sum(c.due), 0), coalesce(sum(c.waiting - c.due), 0), coalesce(sum(c.running), 0)
    into _due, _scheduled, _running from counted c;
    -- Only the newest tasks: there is no index by the time of a claim, because every claim would have to maintain it.
    select percentile_disc(array[0.5, 0.99])
      within group (order by extract(epoch from held.claimed_at - newest.run_at))
    into _delays
    from (select t.task_id, t.run_at from queues.task t order by t.task_id desc limit 1000) newest
    cross join lateral (
      select l.claimed_at from queues.lease l where l.task_id = newest.task_id and l.attempt = 1
      union all
      select o.claimed_at from queues.outcome o where o.task_id = newest.task_id and o.attempt = 1) held
    where held.claimed_at > _now - interval '5 minutes' and held.claimed_at >= newest.run_at;
  end if;

  insert into queues.sample as s (taken_at, transaction_id, bytes, enqueued_total, finished_total, errors_total,
    due, scheduled, running, delay_p50, delay_p99)
  values (_taken_at, pg_current_xact_id(), queues.total_bytes(), queues.count_inserted('queues.task'),
    queues.count_inserted('queues.outcome'), queues.count_inserted('queues.error'),
    _due, _scheduled, _running, _delays[1], _delays[2])
  on conflict (taken_at) do update
  set due = excluded.due, scheduled = excluded.scheduled, running = excluded.running,
    delay_p50 = excluded.delay_p50, delay_p99 = excluded.delay_p99
  where s.due is null and excluded.due is not null;
  if not found then
    return false;
  end if;
  update queues.event_order o set newest = n.newest
  from (select pg_current_xact_id()::text::bigint + queues.event_shift() as newest offset 0) n;
  -- Clearly in the future: a lane or a gap may name a transaction that is about to begin.
  update queues.sample s set transaction_id = '3' where s.transaction_id > (_next + 1000)::text::xid8;
  update queues.error_gap g set noticed_before = _next::text::xid8 where g.noticed_before > (_next + 1000)::text::xid8;
  update queues.lane l set leaving = null where abs(l.leaving) > _next + 1000;
  delete from queues.sample s
  where s.taken_at in (
    select o.taken_at from queues.sample o where o.taken_at < _now - interval '2 days'
    order by o.taken_at limit 100 for update skip locked);
  delete from queues.activity a
  where (a.period, a.queue, a.type, a.at) in (
    select o.period, o.queue, o.type, o.at from queues.activity o
    where o.period = 1 and o.at < _now - interval '2 hours'
      or o.period in (15, 180) and o.at < _now - interval '2 days'
    limit 10000 for update skip locked);
  return true;
end
$$;

comment on function queues.take_sample(boolean) is
  'Takes a sample, unless there is one of the same ten seconds, and returns whether it did.';
