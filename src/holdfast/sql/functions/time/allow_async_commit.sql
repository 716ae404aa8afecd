-- Lets the commit return before it is on disk, unless the transaction has written something that must be durable. For
-- calls that a crash may undo without harm. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.allow_async_commit()
returns boolean
language sql volatile
as $$
  select case when pg_catalog.pg_current_xact_id_if_assigned() is null
    then pg_catalog.set_config('synchronous_commit', 'off', true) = 'off' else false end
$$;

comment on function queues.allow_async_commit() is
  'Lets the commit return before it is on disk, unless the transaction has written something that must be durable.';
