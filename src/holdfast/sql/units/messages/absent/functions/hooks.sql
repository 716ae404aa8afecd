-- What core calls in a database without messages and processes: functions with the names of those in the unit. They
-- find nothing and do nothing.
-- Invariant: their parameters and results are those of the unit, so that each takes the place of the other.
-- Lock order: none.
-- At the same time: nothing is read or written.

-- Does nothing: there are no error handlers, and no supervisors that wait.
-- Internal: called by sweep, finish and cancel.
create or replace function queues.call_error_handlers(
  task_ids uuid[], kind text, message text, permanent boolean, outcome_unknown boolean, now timestamptz)
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;

-- Finds nothing: there are no processes.
-- Internal: called by health.
create or replace function queues.health_of_processes(now timestamptz)
returns setof queues.health_line
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::queues.health_line where false $$;

-- Returns false: there is no mailbox.
-- Internal: called by record_reveal.
create or replace function queues.is_in_mailbox(mailbox_message_id bigint)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select false $$;

-- Returns null: there are no processes.
-- Internal: called by internal.run_function.
create or replace function queues.namespace_of_instance(wait_key uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::text $$;

-- Finds nothing: there are no processes.
-- Internal: called by related_to.
create or replace function queues.processes_named(type text, payload jsonb)
returns table (process text, process_id bigint, status text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::text, null::bigint, null::text where false $$;

-- Removes nothing: there are no messages.
-- Internal: called by prune.
create or replace function queues.prune_messages(
  max_messages integer, past uuid, dry_run boolean, now timestamptz, out pruned integer, out examined integer,
  out next uuid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select 0, 0, null::uuid $$;
