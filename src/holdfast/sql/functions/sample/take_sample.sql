-- Takes a sample, unless there is one of the same ten seconds, and returns whether it did. Counts the waiting and the
-- running tasks only if asked, because that reads all of them. Deletes samples older than two days.
-- For holdfast_worker and holdfast_operator. Locks: old samples, skipping those that other transactions hold.
create or replace function queues.take_sample(count_tasks boolean default true)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
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
begin
  if exists (
    select from queues.sample s where s.taken_at = _taken_at and (s.due is not null or not coalesce(count_tasks, true)))
  then
    return false;
  end if;
  if coalesce(count_tasks, true) then
    select count(*) filter (where r.run_at <= _now), count(*) filter (where r.run_at > _now),
      (select count(*) from queues.lease)
    into _due, _scheduled, _running from queues.ready r;
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
  delete from queues.sample s
  where s.taken_at in (
    select o.taken_at from queues.sample o where o.taken_at < _now - interval '2 days'
    order by o.taken_at limit 100 for update skip locked);
  return true;
end
$$;

comment on function queues.take_sample(boolean) is
  'Takes a sample, unless there is one of the same ten seconds, and returns whether it did.';
