-- Declares events dead that were claimed max_attempts times without a report. They may have killed their dispatchers.
-- Internal: called by claim_events, which holds their locks.
create or replace function queues.end_exhausted_deliveries(
  subscription_id integer, namespaces text[], aggregates text[], numbers bigint[], max_attempts integer,
  now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with gone as (
    delete from queues.delivery d
    using unnest(namespaces, aggregates, numbers) worn(namespace, aggregate_id, event_number)
    where d.subscription_id = end_exhausted_deliveries.subscription_id and d.namespace = worn.namespace
      and d.aggregate_id = worn.aggregate_id and d.event_number = worn.event_number
      and d.attempt >= end_exhausted_deliveries.max_attempts
    returning d.event_id, d.attempt, d.last_error)
  insert into queues.dead_delivery (event_id, subscription_id, died_at, attempt, last_error)
  select g.event_id, end_exhausted_deliveries.subscription_id, end_exhausted_deliveries.now, g.attempt,
    coalesce(g.last_error || '; ', '') || 'the dispatcher ended without a report'
  from gone g
$$;

comment on function queues.end_exhausted_deliveries(integer, text[], text[], bigint[], integer, timestamptz) is
  'Declares events dead that were claimed max_attempts times without a report.';
