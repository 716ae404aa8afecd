-- Returns the samples in steps: waiting and running tasks, rates per second, and how long tasks waited. The rates are
-- those of enqueued and ended tasks and of errors. A step without samples has no row.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_activity(since interval default '1 hour', step interval default '1 minute')
returns table (
  at timestamptz, due double precision, scheduled double precision, running double precision,
  enqueued_per_second double precision, finished_per_second double precision, errors_per_second double precision,
  delay_p50 double precision, delay_p99 double precision)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
  -- A variable, because the clock is volatile and no index is used for it.
  _now constant timestamptz := queues.clock();
begin
  if since is null or since not between interval '1 minute' and interval '2 days' then
    raise exception using errcode = 'QF400', message = 'since must be between 1 minute and 2 days';
  elsif step is null or step not between interval '10 seconds' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'step must be between 10 seconds and 1 day';
  end if;
  return query
  with pace as (
    select s.*, lag(s.taken_at) over w as before,
      -- Statistics restart at zero after a crash; the first sample after that gives no rate.
      case when s.enqueued_total >= lag(s.enqueued_total) over w
        then s.enqueued_total - lag(s.enqueued_total) over w end as enqueued,
      case when s.finished_total >= lag(s.finished_total) over w
        then s.finished_total - lag(s.finished_total) over w end as finished,
      case when s.errors_total >= lag(s.errors_total) over w
        then s.errors_total - lag(s.errors_total) over w end as errors
    from queues.sample s where s.taken_at > _now - since - interval '1 minute'
    window w as (order by s.taken_at)),
  timed as (
    select p.*, nullif(extract(epoch from p.taken_at - p.before), 0)::double precision as seconds
    from pace p where p.taken_at > _now - since)
  select date_bin(step, t.taken_at, '2000-01-01 00:00:00+00') as at,
    avg(t.due)::double precision, avg(t.scheduled)::double precision, avg(t.running)::double precision,
    sum(t.enqueued) / sum(t.seconds) filter (where t.enqueued is not null),
    sum(t.finished) / sum(t.seconds) filter (where t.finished is not null),
    sum(t.errors) / sum(t.seconds) filter (where t.errors is not null),
    avg(t.delay_p50), max(t.delay_p99)
  from timed t group by 1 order by 1;
end
$$;

comment on function queues.list_activity(interval, interval) is
  'Returns the samples in steps: waiting and running tasks, rates per second, and how long tasks waited.';
