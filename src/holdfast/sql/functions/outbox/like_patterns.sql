-- Converts patterns that end in a star to the form that LIKE ANY compares.
create or replace function queues.like_patterns(patterns text[])
returns text[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(
    case when right(pattern, 1) = '*' then regexp_replace(left(pattern, -1), '([\\%_])', '\\\1', 'g') || '%'
      else regexp_replace(pattern, '([\\%_])', '\\\1', 'g') end), '{}')
  from unnest(patterns) pattern
$$;

comment on function queues.like_patterns(text[]) is
  'Converts patterns that end in a star to the form that LIKE ANY compares.';
