-- Returns whether a schedule can have this time. With every, a multiple of the interval from its anchor; with cron, a
-- whole minute, because the worker reads expressions and zones. A worker thus cannot fire a schedule more often than
-- that.
-- Internal.
create or replace function queues.is_schedule_time(schedule queues.schedule, at timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when not isfinite(at) then at = 'infinity'
    when (schedule).every is null then mod(extract(epoch from at), 60) = 0
    else mod(extract(epoch from at - (schedule).anchor), extract(epoch from (schedule).every)) = 0 end
$$;

comment on function queues.is_schedule_time(queues.schedule, timestamptz) is
  'Returns whether a schedule can have this time.';
