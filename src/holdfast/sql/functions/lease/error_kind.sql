-- Returns the kind of an error, whatever form the worker reported it in.
-- No pinned path, so that PostgreSQL can inline it.
create or replace function queues.error_kind(error jsonb, otherwise text)
returns text
language sql immutable parallel safe
as $$
  select pg_catalog.left(coalesce(
    case when pg_catalog.jsonb_typeof(error) = 'object' then error ->> 'kind' end, otherwise), 200)
$$;

comment on function queues.error_kind(jsonb, text) is
  'Returns the kind of an error, whatever form the worker reported it in.';
