-- Returns the current time: the only clock, from which every stored time comes. Tests replace this function as the
-- owner. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.clock()
returns timestamptz
language sql volatile parallel safe
as $$ select pg_catalog.clock_timestamp() $$;

comment on function queues.clock() is 'Returns the current time: the only clock, from which every stored time comes.';
