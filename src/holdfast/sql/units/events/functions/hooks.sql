-- What core asks of events. In a database without them, absent/functions/hooks.sql has the same functions, which find
-- nothing. Two more are where they belong: emit_task_events and emit_worker_lost.
-- Invariant: core calls these functions, reads the view queues.engine_subscription, and names nothing else of this
-- unit.
-- Lock order: the row of queues.event_order; subscriptions. Those that look lock nothing.
-- At the same time: everything may change while they look; each answer describes one moment.

-- Explains which events about a task have not reached their subscriptions, and why; null if all have.
-- Internal: called by explain.
create or replace function queues.explain_events(task_id uuid, now timestamptz)
returns table (why text, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(format('Its event %s waits for subscription %s since %s: %s.', e.event_type, s.name,
    date_trunc('second', d.emitted_at),
    case when s.paused_at is not null then 'it is paused'
      when d.last_error is not null then 'delivery failed'
      when b.open_until is not null then 'its receiver fails'
      when not exists (select from queues.dispatcher p where p.last_seen > now - (
          select g.value * interval '1 second' from queues.setting g where g.name = 'worker_timeout_seconds'))
        then 'no dispatcher is live'
      when d.lease_until >= now then 'dispatcher ' || d.dispatcher_id || ' is sending it'
      else 'others come before it' end), ' '
    order by e.event_number, s.name),
    string_agg(distinct left(coalesce(d.last_error, case when b.open_until is not null then b.last_error end), 200),
      '; ')
      filter (where s.paused_at is null)
  from queues.outbox_event e
  cross join queues.subscription s
  join queues.delivery d on d.subscription_id = s.subscription_id
    and d.namespace = e.namespace and d.aggregate_id = coalesce(e.aggregate_id, e.event_id::text)
    and d.event_number = e.event_number
  left join queues.breaker b on b.subscription_id = s.subscription_id and b.namespace = e.namespace
  where e.task_id = explain_events.task_id and s.removed_at is null
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
    case when s.problem is not null then format('subscription %s cannot be served', s.name)
      when waiting.pending = 0 then format('subscription %s has all its events', s.name)
      else format('%s event%s wait%s for subscription %s, the oldest for %s%s',
        case waiting.pending when 10000 then '10000 or more' else waiting.pending::text end,
        case waiting.pending when 1 then '' else 's' end, case waiting.pending when 1 then 's' else '' end,
        s.name, queues.format_duration(waiting.seconds),
        case when s.paused_at is not null then '; it is paused'
          when b.open_until is not null then '; its receiver fails those of namespace ' || b.namespace
          when _sent_by = 0 then '; no dispatcher is live' else '' end) end,
    case when s.problem is not null
      then 'Fix the problem and restart the dispatcher, or remove the subscription and add it again.'
      when waiting.pending = 0 then null
      when s.paused_at is not null then format('To resume: holdfast events resume %s', s.name)
      when _sent_by = 0 then 'Start a dispatcher: holdfast dispatch'
      when b.open_until is not null then 'Fix its receiver; delivery is retried automatically.'
      when waiting.seconds >= 60 then 'Run more dispatchers, or make the receiver faster.' end,
    left(case when s.problem is not null then s.problem
      when waiting.pending > 0 and s.paused_at is null and b.open_until is not null then b.last_error end, 200)
  from (
    select s.*, (
      select format('dispatcher on %s: %s', d.hostname, d.unusable ->> s.subscription_id::text) from queues.dispatcher d
      where d.unusable ? s.subscription_id::text and d.last_seen > health_of_outbox.now - _timeout
      order by d.last_seen desc limit 1) as problem
    from queues.subscription s where s.removed_at is null) s
  left join lateral (
    select b.* from queues.breaker b where b.subscription_id = s.subscription_id
    order by b.open_until desc nulls last, b.last_failure_at desc nulls last limit 1) b on true
  cross join lateral (
    select count(*) as pending, extract(epoch from now - min(d.emitted_at))::double precision as seconds
    from (select d.emitted_at from queues.delivery d where d.subscription_id = s.subscription_id limit 10000) d) waiting
  order by s.problem is null, waiting.seconds desc nulls last limit 100;

  return query
  select 'dead_events', queues.level_of(dead.events, 1, 1000), s.name, dead.events::double precision,
    format('%s event%s for subscription %s %s given up',
      case dead.events when 1000 then '1000 or more' else dead.events::text end,
      case dead.events when 1 then '' else 's' end, s.name, case dead.events when 1 then 'was' else 'were' end),
    format('Once its receiver works again: holdfast events redrive %s', s.name), null
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
