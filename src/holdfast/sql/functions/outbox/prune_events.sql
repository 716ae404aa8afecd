-- Removes old delivered events, events without a subscription, dead events, and rests of ended subscriptions. Removes a
-- limited number of deliveries of each kind per call; returns how many events and deliveries it removed.
-- For holdfast_worker and holdfast_operator. Locks: the rows that it removes, without waiting.
create or replace function queues.prune_events(
  older_than interval default '7 days', dead_older_than interval default '30 days', max_events integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _now constant timestamptz := queues.clock();
  _left uuid[];
  _removed integer;
  _events integer;
begin
  if older_than is null or dead_older_than is null or older_than < '0' or dead_older_than < '0'
    or max_events is null or max_events not between 1 and 100000
  then
    raise exception using errcode = 'QF400',
      message = 'prune_events needs two ages that are not negative, and max_events between 1 and 100000';
  end if;
  with removed as materialized (select s.subscription_id from queues.subscription s where s.removed_at is not null),
  delivered as (
    delete from queues.delivered d
    where (d.event_id, d.subscription_id) in (
      select old.event_id, old.subscription_id from queues.delivered old where old.delivered_at < _now - older_than
      order by old.delivered_at limit max_events for update skip locked)
    returning d.event_id),
  dead as (
    delete from queues.dead_delivery d
    where (d.event_id, d.subscription_id) in (
      select old.event_id, old.subscription_id from queues.dead_delivery old where old.died_at < _now - dead_older_than
      order by old.died_at limit max_events for update skip locked)
    returning d.event_id),
  orphaned as (
    delete from queues.delivery d
    where (d.subscription_id, d.namespace, d.aggregate_id, d.event_number) in (
      select o.subscription_id, o.namespace, o.aggregate_id, o.event_number
      from queues.delivery o where o.subscription_id in (select r.subscription_id from removed r)
      limit max_events for update skip locked)
    returning d.event_id),
  orphaned_dead as (
    delete from queues.dead_delivery d
    where (d.event_id, d.subscription_id) in (
      select o.event_id, o.subscription_id from queues.dead_delivery o
      where o.subscription_id in (select r.subscription_id from removed r) and o.died_at >= _now - dead_older_than
      limit max_events for update skip locked)
    returning d.event_id),
  unasked as (
    select e.event_id from queues.outbox_event e where e.deliveries = 0 and e.occurred_at < _now - older_than
    order by e.occurred_at limit max_events),
  gone as (
    select d.event_id, 1 as removed from delivered d union all select d.event_id, 1 from dead d
    union all select o.event_id, 1 from orphaned o union all select o.event_id, 1 from orphaned_dead o
    union all select u.event_id, 0 from unasked u)
  select array_agg(distinct g.event_id), coalesce(sum(g.removed), 0) into _left, _removed from gone g;

  -- Separate statements, which see what is left.
  perform set_config('holdfast.retention', 'on', true);
  delete from queues.outbox_event e
  where e.event_id = any (_left)
    and (select true from queues.delivery d where d.event_id = e.event_id and e.deliveries > 0
      and d.namespace = e.namespace and d.aggregate_id = coalesce(e.aggregate_id, e.event_id::text)
      and d.event_number = e.event_number
      and d.subscription_id in (select s.subscription_id from queues.subscription s) limit 1) is null
    and (select true from queues.delivered d where d.event_id = e.event_id limit 1) is null
    and (select true from queues.dead_delivery d where d.event_id = e.event_id limit 1) is null;
  get diagnostics _events = row_count;
  perform set_config('holdfast.retention', _retention, true);
  delete from queues.subscription s
  where s.removed_at is not null
    and (select true from queues.delivery d where d.subscription_id = s.subscription_id limit 1) is null
    and (select true from queues.dead_delivery d where d.subscription_id = s.subscription_id limit 1) is null;
  delete from queues.breaker b
  where not exists (select from queues.subscription s where s.subscription_id = b.subscription_id);
  return _removed + _events;
end
$$;

comment on function queues.prune_events(interval, interval, integer) is
  'Removes old delivered events, events without a subscription, dead events, and rests of ended subscriptions.';
