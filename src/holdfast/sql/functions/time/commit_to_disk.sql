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

comment on function queues.commit_to_disk() is 'Makes the commit of this transaction wait for the disk.';
