-- Lets the commit return before it is on disk, unless the transaction has written something that must be durable. For
-- calls that a crash may undo without harm.
create or replace function queues.allow_to_lose()
returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case when pg_current_xact_id_if_assigned() is null
    then set_config('synchronous_commit', 'off', true) = 'off' else false end
$$;

comment on function queues.allow_to_lose() is
  'Lets the commit return before it is on disk, unless the transaction has written something that must be durable.';
