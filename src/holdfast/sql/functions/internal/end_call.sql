-- Gives the session its own namespace and roles again.
-- Internal: called by internal.call_checked. Locks: nothing.
create or replace function internal.end_call()
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
  delete from internal.call c where c.transaction_id = pg_current_xact_id()
$$;

comment on function internal.end_call() is 'Gives the session its own namespace and roles again.';
