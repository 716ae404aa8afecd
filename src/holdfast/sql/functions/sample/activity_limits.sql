-- Returns the upper limits, in seconds, of the counts in queues.activity. The last count has none.
-- Internal: called by record_activity and percentile_of.
create or replace function queues.activity_limits()
returns double precision[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select array[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 43200]
$$;

comment on function queues.activity_limits() is
  'Returns the upper limits, in seconds, of the counts in queues.activity.';
