-- Whether a time can be one of the times of a schedule: with every, a whole number of intervals from its anchor; with cron, a whole minute,
-- because expressions and zones are read by the worker. So no worker can let a schedule fire more often than that.
create or replace function queues.is_time_of(schedule queues.schedule, at timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when not isfinite(at) then at = 'infinity'
    when (schedule).every is null then mod(extract(epoch from at), 60) = 0
    else mod(extract(epoch from at - (schedule).anchor), extract(epoch from (schedule).every)) = 0 end
$$;

comment on function queues.is_time_of(queues.schedule, timestamptz) is 'Whether a time can be one of the times of a schedule.';
