-- Units of installation: which parts of the engine this database has.
-- Invariant: a unit that is not installed has no table, function, view or grant. Core calls only what its hooks.sql
-- states, and that exists in either case: see units/ and units/*/absent.
-- Lock order: none.
-- At the same time: a migration adds a unit in one transaction. Workers ask again after a while.

-- Returns the units that are installed, core first.
-- For holdfast_client, holdfast_worker, holdfast_dispatcher and holdfast_reader. Locks: none.
create or replace function queues.installed_units()
returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select array_agg(u.unit order by u.unit <> 'core', u.unit) from queues.unit u where u.installed $$;
