-- Returns a one-line message for an error, whatever form the worker reported it in. No pinned path, so that PostgreSQL
-- can inline it.
create or replace function queues.error_message(error jsonb, otherwise text)
returns text
language sql immutable parallel safe
as $$
  select pg_catalog.left(case pg_catalog.jsonb_typeof(error)
    when 'object' then coalesce(error ->> 'message', error ->> 'kind', error::text)
    when 'string' then error #>> '{}'
    when 'null' then otherwise
    else coalesce(error::text, otherwise) end, 8192)
$$;

comment on function queues.error_message(jsonb, text) is
  'Returns a one-line message for an error, whatever form the worker reported it in.';
