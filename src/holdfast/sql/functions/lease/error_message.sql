-- One line that says what went wrong, from whatever shape a worker reports an error in. No pinned path, so that it is inlined.
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
  'One line that says what went wrong, from whatever shape a worker reports an error in.';
