-- Writes events and a delivery for each matching subscription, in the given order. Events without a matching
-- subscription are written only if they are to be kept. An event belongs to the namespace that it states, otherwise to
-- that of the session. Runs in the caller's transaction, so that rolled-back events
-- are never sent, and late commits are not overtaken by a cursor.
-- Internal: called by emit and for events of the engine.
create or replace function queues.record_events(batch queues.new_event[], now timestamptz, keep boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  _namespace constant text := queues.namespace();
  _transaction_id constant xid8 := (pg_current_xact_id()::text::bigint + queues.event_shift())::text::xid8;
  _asked integer[];
begin
  with given as materialized (
    select b.* from unnest(batch) with ordinality
      b(event_id, event_type, aggregate_id, subject, source, task_id, task_type, traceparent, data, namespace, n)
    order by b.n),
  event as materialized (
    select nextval('queues.event_number') as event_number, coalesce(g.namespace, _namespace) as owner, g.*
    from given g),
  asked as materialized (
    select s.subscription_id, e.owner, e.event_id, e.event_number,
      coalesce(e.aggregate_id, e.event_id::text) as aggregate_id
    from event e join queues.subscription s on s.removed_at is null
    where queues.is_subscribed(s.event_patterns, s.prefix_patterns, e.event_type, e.task_type)
      and (s.namespaces = '{}' or e.owner = any (s.namespaces))),
  outstanding as (
    insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at, due_at,
      attempt, counted)
    select a.subscription_id, a.owner, a.aggregate_id, a.event_number, a.event_id, record_events.now, record_events.now,
      0, false
    from asked a),
  written as (
    insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at, task_id, event_type,
      aggregate_id, subject, source, traceparent, emitted_by, namespace, deliveries, data)
    select e.event_id, e.event_number, _transaction_id, record_events.now, e.task_id, e.event_type,
      e.aggregate_id, e.subject, e.source, e.traceparent, session_user, e.owner, a.deliveries, e.data
    from event e
    cross join lateral (select count(*) as deliveries from asked a where a.event_id = e.event_id) a
    where keep or a.deliveries > 0)
  select array_agg(distinct a.subscription_id) into _asked from asked a;

  if _asked is not null then
    perform queues.wake_dispatchers(_asked);
  end if;
end
$$;

comment on function queues.record_events(queues.new_event[], timestamptz, boolean) is
  'Writes events and a delivery for each matching subscription, in the given order.';
