-- What core calls in a database without events: functions with the names of those in the unit. They find
-- nothing and do nothing.
-- Invariant: their parameters and results are those of the unit, so that each takes the place of the other.
-- Lock order: none.
-- At the same time: nothing is read or written.

-- Does nothing: there are no subscriptions.
-- Internal: called by notify_waiters if there is a subscription to events of the engine.
create or replace function queues.emit_task_events(task_ids uuid[])
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;

-- Does nothing: there are no subscriptions.
-- Internal: called by recover_workers.
create or replace function queues.emit_worker_lost(worker_id text, last_heartbeat timestamptz)
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;

-- Explains nothing: there are no events.
-- Internal: called by explain.
create or replace function queues.explain_events(task_id uuid, now timestamptz)
returns table (code text, facts jsonb, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::text, null::jsonb, null::text where false $$;

-- Finds nothing: there is no outbox.
-- Internal: called by health.
create or replace function queues.health_of_outbox(now timestamptz)
returns setof queues.health_line
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::queues.health_line where false $$;

-- Does nothing: there are no events to keep in order.
-- Internal: called by take_sample.
create or replace function queues.record_event_order()
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;

-- Returns an empty document: there are no subscriptions.
-- Internal: called by shard_settings.
create or replace function queues.shard_subscriptions()
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select '[]'::jsonb $$;

-- Does nothing: there can be no subscriptions.
-- Internal: called by take_shard_settings.
create or replace function queues.take_shard_subscriptions(subscriptions jsonb)
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;
