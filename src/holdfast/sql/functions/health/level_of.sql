-- Returns green, amber or red, by two thresholds.
create or replace function queues.level_of(value double precision, amber double precision, red double precision)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select case when value >= red then 'red' when value >= amber then 'amber' else 'green' end $$;

comment on function queues.level_of(double precision, double precision, double precision) is
  'Returns green, amber or red, by two thresholds.';
