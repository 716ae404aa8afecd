-- Returns the current time: the only clock, from which every stored time comes. Tests replace this function as the
-- owner. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.clock()
returns timestamptz
language sql volatile parallel safe
as $$ select pg_catalog.clock_timestamp() $$;

-- Makes the commit of this transaction wait for the disk. Raises synchronous_commit only: a caller that waits for a
-- standby (remote_apply) goes on doing so. No function lowers it, because the rest of the transaction is the caller's:
-- a worker lowers it for its own session. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.commit_to_disk()
returns text
language sql volatile
as $$
  select case when pg_catalog.current_setting('synchronous_commit') = any ('{off,local,remote_write}'::text[])
    then pg_catalog.set_config('synchronous_commit', 'on', true) end
$$;
