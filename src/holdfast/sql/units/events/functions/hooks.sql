-- What core asks of events. In a database without them, absent/functions/hooks.sql has the same functions, which find
-- nothing. Two more are where they belong: emit_task_events and emit_worker_lost.
-- Invariant: core calls these functions, reads the view queues.engine_subscription, and names nothing else of this
-- unit.
-- Lock order: the row of queues.event_order; subscriptions. Those that look lock nothing.
-- At the same time: everything may change while they look; each answer describes one moment.

-- Explains which events about a task have not reached their subscriptions, and why; at most 20.
-- Internal: called by explain.
create or replace function queues.explain_events(task_id uuid, now timestamptz)
returns table (code text, facts jsonb, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when s.paused_at is not null then 'event_paused'
      when d.last_error is not null then 'event_failed'
      when b.open_until is not null then 'event_receiver_fails'
      when not exists (select from queues.dispatcher p where p.last_seen > now - (
          select g.value * interval '1 second' from queues.setting g where g.name = 'worker_timeout_seconds'))
        then 'event_without_dispatcher'
      when d.lease_until >= now then 'event_being_sent'
      else 'event_behind_others' end as code,
    jsonb_build_object('event_type', e.event_type, 'subscription', s.name, 'since', d.emitted_at,
      'dispatcher', d.dispatcher_id),
    case when s.paused_at is null
      then left(coalesce(d.last_error, case when b.open_until is not null then b.last_error end), 200) end
  from queues.outbox_event e
  cross join queues.subscription s
  join queues.delivery d on d.subscription_id = s.subscription_id
    and d.namespace = e.namespace and d.aggregate_id = coalesce(e.aggregate_id, e.event_id::text)
    and d.event_number = e.event_number
  left join queues.breaker b on b.subscription_id = s.subscription_id and b.namespace = e.namespace
  where e.task_id = explain_events.task_id and s.removed_at is null
  order by e.event_number, s.name limit 20
$$;

-- Checks events that wait for delivery, dead events, and whether a dispatcher runs. Counts up to 10,000 per
-- subscription.
-- Internal: called by health.
create or replace function queues.health_of_outbox(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _timeout constant interval := (select s.value * interval '1 second' from queues.setting s
    where s.name = 'worker_timeout_seconds');
  _sent_by constant bigint := (select count(*) from queues.dispatcher d where d.last_seen > now - _timeout);
begin
  return query
  select 'outbox', case when s.problem is not null then 'red'
      when s.paused_at is not null then queues.level_of(waiting.seconds, 0, 'infinity')
      when waiting.pending >= 10000 then 'red'
      when b.open_until is not null and waiting.pending > 0 then queues.level_of(waiting.seconds, 0, 600)
      else queues.level_of(waiting.seconds, 60, 600) end, s.name, coalesce(waiting.seconds, 0),
    case when s.problem is not null then 'subscription_unusable' when waiting.pending = 0 then 'events_delivered'
      when s.paused_at is not null then 'events_paused' when _sent_by = 0 then 'no_dispatcher'
      when b.open_until is not null then 'receiver_fails' else 'events_wait' end as code,
    jsonb_build_object('hostname', s.hostname, 'pending', waiting.pending, 'counted_to', 10000,
      'namespace', b.namespace),
    left(case when s.problem is not null then s.problem
      when waiting.pending > 0 and s.paused_at is null and b.open_until is not null then b.last_error end, 200)
  from (
    select s.*, d.hostname, d.problem from queues.subscription s
    left join lateral (
      select d.hostname, d.unusable ->> s.subscription_id::text as problem from queues.dispatcher d
      where d.unusable ? s.subscription_id::text and d.last_seen > health_of_outbox.now - _timeout
      order by d.last_seen desc limit 1) d on true
    where s.removed_at is null) s
  left join lateral (
    select b.* from queues.breaker b where b.subscription_id = s.subscription_id
    order by b.open_until desc nulls last, b.last_failure_at desc nulls last limit 1) b on true
  cross join lateral (
    select count(*) as pending, extract(epoch from now - min(d.emitted_at))::double precision as seconds
    from (select d.emitted_at from queues.delivery d where d.subscription_id = s.subscription_id limit 10000) d) waiting
  order by s.problem is null, waiting.seconds desc nulls last limit 100;

  return query
  select 'dead_events', queues.level_of(dead.events, 1, 1000), s.name, dead.events::double precision,
    'dead_events' as code, jsonb_build_object('counted_to', 1000), null
  from queues.subscription s
  cross join lateral (
    select count(*) as events from (
      select from queues.dead_delivery d where d.subscription_id = s.subscription_id limit 1000) d) dead
  where s.removed_at is null and dead.events > 0
  order by dead.events desc limit 100;
end
$$;

-- Remembers the id of this transaction, in case that no event is left that tells how far the cluster has come.
-- Internal: called by take_sample. Locks: the row of queues.event_order.
create or replace function queues.record_event_order()
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  update queues.event_order o set newest = n.newest
  from (select pg_current_xact_id()::text::bigint + queues.event_shift() as newest offset 0) n
$$;

-- Returns the subscriptions of this shard, as a document for take_shard_subscriptions.
-- Internal: called by shard_settings.
create or replace function queues.shard_subscriptions()
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select coalesce(jsonb_agg(to_jsonb(s)), '[]') from queues.subscription s where s.removed_at is null $$;

-- Replaces the subscriptions of this shard by those of another one. They get ids of their own here, and a breaker.
-- Internal: called by take_shard_settings. Locks: the subscriptions.
create or replace function queues.take_shard_subscriptions(subscriptions jsonb)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform queues.unsubscribe(s.name) from queues.subscription s where s.removed_at is null;
  perform queues.subscribe(s.name, s.sink, s.target, s.event_types, s.type_prefixes, s.options, s.secrets,
    s.max_attempts)
  from jsonb_populate_recordset(null::queues.subscription, subscriptions) s;
  update queues.subscription o
  set paused_at = s.paused_at, paused_by = s.paused_by, pause_reason = s.pause_reason
  from jsonb_populate_recordset(null::queues.subscription, subscriptions) s
  where s.name = o.name and o.removed_at is null and s.paused_at is not null;
end
$$;
