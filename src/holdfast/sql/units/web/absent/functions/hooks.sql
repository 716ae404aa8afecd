-- What core calls in a database without web access: functions with the names of those in the unit. They find
-- nothing and do nothing.
-- Invariant: their parameters and results are those of the unit, so that each takes the place of the other.
-- Lock order: none.
-- At the same time: nothing is read or written.

-- Returns an empty document: there are no tokens.
-- Internal: called by shard_settings.
create or replace function queues.shard_tokens()
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select '[]'::jsonb $$;

-- Does nothing: there can be no tokens.
-- Internal: called by take_shard_settings.
create or replace function queues.take_shard_tokens(tokens jsonb)
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;
