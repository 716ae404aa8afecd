-- Returns the types with the most activity ("busiest"), with the longest run time ("slowest") and with the most failed
-- attempts ("failing"), up to max_types of each, the first first: how many attempts ended how, and how long they ran on
-- average. Reads whole periods of the longer kind, and of the shorter one only the time before the first of them.
-- For holdfast_reader. Locks: none.
create or replace function queues.rank_types(
  since interval default '1 hour', of_queue text default null, max_types integer default 10)
returns table (
  ranking text, queue text, type text, succeeded bigint, failed bigint, retrying bigint, cancelled bigint,
  mean_seconds double precision)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _short constant integer := case when since > interval '2 hours' then 15 else 1 end;
  _long constant integer := case when since > interval '2 hours' then 180 else 15 end;
  _from timestamptz;
  _whole timestamptz;
begin
  if since is null or since not between interval '1 minute' and interval '2 days' then
    raise exception using errcode = 'QF400', message = 'since must be between 1 minute and 2 days';
  elsif max_types is null or max_types not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_types must be between 1 and 1000';
  end if;
  _from := date_bin(make_interval(mins => _short), queues.clock() - since, '2000-01-01 00:00:00+00');
  _whole := date_bin(make_interval(mins => _long), _from - interval '1 microsecond', '2000-01-01 00:00:00+00')
    + make_interval(mins => _long);
  return query
  with counted as (
    select a.queue, a.type, a.succeeded, a.failed + a.dead_letter as failed, a.retrying, a.cancelled, a.run_seconds
    from queues.activity a
    where a.period = _short and a.at >= _from and a.at < _whole and a.type > ''
      and (of_queue is null or a.queue = of_queue)
    union all
    select a.queue, a.type, a.succeeded, a.failed + a.dead_letter, a.retrying, a.cancelled, a.run_seconds
    from queues.activity a
    where a.period = _long and a.at >= _whole and a.type > '' and (of_queue is null or a.queue = of_queue)),
  types as materialized (
    select c.queue, c.type, sum(c.succeeded)::bigint as succeeded, sum(c.failed)::bigint as failed,
      sum(c.retrying)::bigint as retrying, sum(c.cancelled)::bigint as cancelled, sum(c.run_seconds) as run_seconds,
      sum(c.succeeded + c.failed + c.retrying + c.cancelled)::bigint as ended
    from counted c group by 1, 2)
  select r.ranking, r.queue, r.type, r.succeeded, r.failed, r.retrying, r.cancelled, r.run_seconds / r.ended
  from (values (1, 'busiest'), (2, 'slowest'), (3, 'failing')) k(place, ranking)
  cross join lateral (
    select k.ranking, t.*, row_number() over (order by o.rank desc, t.queue, t.type) as n
    from types t
    cross join lateral (
      select case k.place when 1 then t.ended::double precision when 2 then t.run_seconds / nullif(t.ended, 0)
        else (t.failed + t.retrying)::double precision end as rank) o
    where t.ended > 0 and (k.place <> 3 or t.failed + t.retrying > 0)) r
  where r.n <= max_types
  order by k.place, r.n;
end
$$;

comment on function queues.rank_types(interval, text, integer) is
  'Returns the types with the most activity, the slowest, and those that fail most.';
