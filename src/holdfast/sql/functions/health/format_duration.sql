-- Returns a duration as readable text.
create or replace function queues.format_duration(seconds double precision)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when seconds < 10 then round(greatest(0, seconds)::numeric, 2) || ' s'
    when seconds < 120 then round(seconds) || ' s'
    when seconds < 7200 then round(seconds / 60) || ' min' when seconds < 172800 then round(seconds / 3600) || ' h'
    else round(seconds / 86400) || ' days' end
$$;

comment on function queues.format_duration(double precision) is 'Returns a duration as readable text.';
