-- Locks the first outstanding delivery of each aggregate that may be claimed, in the order of namespaces and
-- aggregates, except those of the namespaces that are shut. Skips from one aggregate to the next in the index, so that
-- neither long queues behind a head nor deleted rows cost anything, and over a namespace that is shut at once.
-- Internal: called by claim_events. Locks: deliveries, without waiting.
create or replace function queues.lock_first_deliveries(
  subscription_id integer, shut text[], from_namespace text, from_aggregate text, up_to_namespace text,
  up_to_aggregate text, now timestamptz, max_heads integer)
returns table (namespace text, aggregate_id text, event_number bigint, attempt integer)
language plpgsql volatile rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  with recursive head as (
    (select d.namespace, d.aggregate_id, d.event_number, d.due_at, d.lease_until, d.namespace = any (shut) as is_shut
     from queues.delivery d
     where d.subscription_id = lock_first_deliveries.subscription_id
       and (d.namespace, d.aggregate_id) > (from_namespace, from_aggregate)
     order by d.namespace, d.aggregate_id, d.event_number limit 1)
    union all
    select next.namespace, next.aggregate_id, next.event_number, next.due_at, next.lease_until,
      next.namespace = any (shut)
    from head h
    cross join lateral (
      (select d.namespace, d.aggregate_id, d.event_number, d.due_at, d.lease_until from queues.delivery d
       where d.subscription_id = lock_first_deliveries.subscription_id and not h.is_shut
         and (d.namespace, d.aggregate_id) > (h.namespace, h.aggregate_id)
       order by d.namespace, d.aggregate_id, d.event_number limit 1)
      union all
      (select d.namespace, d.aggregate_id, d.event_number, d.due_at, d.lease_until from queues.delivery d
       where d.subscription_id = lock_first_deliveries.subscription_id and h.is_shut and d.namespace > h.namespace
       order by d.namespace, d.aggregate_id, d.event_number limit 1)) next
    where up_to_namespace is null or (h.namespace, h.aggregate_id) < (up_to_namespace, up_to_aggregate)),
  free as materialized (
    select h.namespace, h.aggregate_id, h.event_number from head h
    where not h.is_shut and h.due_at <= lock_first_deliveries.now
      and (h.lease_until is null or h.lease_until < lock_first_deliveries.now)
      and (up_to_namespace is null or (h.namespace, h.aggregate_id) <= (up_to_namespace, up_to_aggregate))
    limit max_heads)
  select locked.namespace, locked.aggregate_id, locked.event_number, locked.attempt
  from free f
  cross join lateral (
    select d.namespace, d.aggregate_id, d.event_number, d.attempt from queues.delivery d
    where d.subscription_id = lock_first_deliveries.subscription_id and d.namespace = f.namespace
      and d.aggregate_id = f.aggregate_id and d.event_number = f.event_number
      and d.due_at <= lock_first_deliveries.now and (d.lease_until is null or d.lease_until < lock_first_deliveries.now)
    for update skip locked) locked;
end
$$;

comment on function queues.lock_first_deliveries(
  integer, text[], text, text, text, text, timestamptz, integer) is
  'Locks the first outstanding delivery of each aggregate that may be claimed.';
