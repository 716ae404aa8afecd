-- The only clock. Every stored time comes from here; tests replace this function as the owner.
-- No pinned path, so that callers inline it.
create or replace function queues.clock()
returns timestamptz
language sql volatile parallel safe
as $$ select pg_catalog.clock_timestamp() $$;

comment on function queues.clock() is 'The only clock: every stored time comes from here.';
