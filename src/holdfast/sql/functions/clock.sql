-- The time, and how durable a commit is. Both are functions of one line, because every other file calls them.
-- Invariant: every stored time of what has happened comes from queues.clock(), and so from the server; a start that a
-- worker reports is limited to the time between its claim and now. The clock goes on during a transaction, so most
-- functions read it once. No function of the engine lowers synchronous_commit.
-- Lock order: none.
-- At the same time: sessions read the same clock, but commit in another order than they read it. It may also be set
-- back: where that matters, a stored time in the future is taken for one from before.

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
