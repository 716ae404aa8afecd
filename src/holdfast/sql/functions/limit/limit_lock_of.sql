-- Returns the row of queues.limit_lock for a queue, a type or a concurrency key. If two share a row, claims under one
-- may wait for the other.
-- Internal.
create or replace function queues.limit_lock_of(subject text, name text)
returns integer
language sql immutable
as $$ select (pg_catalog.hashtextextended(name, pg_catalog.length(subject)) & 16383)::integer $$;

comment on function queues.limit_lock_of(text, text) is
  'Returns the row of queues.limit_lock for a queue, a type or a concurrency key.';
