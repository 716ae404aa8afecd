-- Returns a concurrency key together with its namespace; null without a key. The length keeps two pairs that read
-- alike apart. No pinned path, so that PostgreSQL can inline it.
-- Internal.
create or replace function queues.qualified_key(namespace text, concurrency_key text)
returns text
language sql immutable
as $$ select pg_catalog.octet_length(namespace)::text || ':' || namespace || ':' || concurrency_key $$;

comment on function queues.qualified_key(text, text) is
  'Returns a concurrency key together with its namespace; null without a key.';
