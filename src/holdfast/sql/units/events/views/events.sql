-- What people read about the outbox: events, their deliveries, subscriptions and dispatchers.

-- Events of the outbox, each with the state of its deliveries. Clients see those of their namespace.
create or replace view queues.event_status with (security_barrier) as
select e.event_id, e.event_type, e.occurred_at, e.aggregate_id, coalesce(e.subject, e.aggregate_id) as subject,
  e.source, e.task_id, e.traceparent, e.emitted_by, e.namespace, e.data,
  (select pg_catalog.count(*) from queues.delivered d where d.event_id = e.event_id) as delivered,
  (select pg_catalog.count(*) from queues.dead_delivery d where d.event_id = e.event_id) as dead,
  e.deliveries, e.transaction_id, e.event_number
from queues.outbox_event e
where (select queues.may_read_all()) or e.namespace = (select queues.namespace());

comment on view queues.event_status is 'Events of the outbox, each with the state of its deliveries.';

-- Every delivery of every event: outstanding, delivered or dead. Clients see those of events of their namespace.
create or replace view queues.delivery_status with (security_barrier) as
select e.event_id, e.task_id, e.event_type, e.occurred_at, s.name as subscription, d.status, d.attempt, d.due_at,
  d.settled_at, d.dispatcher_id, d.last_error
from queues.outbox_event e
cross join lateral (
  select w.subscription_id, case when w.lease_until >= queues.clock() then 'in_flight'
    when w.attempt > 0 then 'retrying' else 'waiting' end
      as status, w.attempt, w.due_at, null::timestamptz as settled_at, w.dispatcher_id, w.last_error
  from queues.subscription of_name
  join queues.delivery w on w.subscription_id = of_name.subscription_id
    and w.namespace = e.namespace and w.aggregate_id = coalesce(e.aggregate_id, e.event_id::text)
    and w.event_number = e.event_number
  union all
  select a.subscription_id, 'delivered', a.attempt, null, a.delivered_at, a.dispatcher_id, null
  from queues.delivered a where a.event_id = e.event_id
  union all
  select x.subscription_id, 'dead', x.attempt, null, x.died_at, null, x.last_error
  from queues.dead_delivery x where x.event_id = e.event_id) d
left join queues.subscription s on s.subscription_id = d.subscription_id
where (select queues.may_read_all()) or e.namespace = (select queues.namespace());

comment on view queues.delivery_status is 'Every delivery of every event: outstanding, delivered or dead.';

-- The running dispatchers.
create or replace view queues.dispatcher_status with (security_barrier) as
select d.dispatcher_id, d.hostname, d.pid, d.version, d.waiting, d.sinks, d.started_at, d.last_seen,
  d.last_seen > queues.clock() - (
    select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds') as live
from queues.dispatcher d;

comment on view queues.dispatcher_status is 'The running dispatchers.';

-- The state of each subscription: what it matches, what is outstanding, and whether its receiver responds: the breaker
-- is that of the namespace that is probed last. If a dispatcher cannot serve it, also why. Counts up to 10,000
-- outstanding and as many dead events of each. Addresses are shown without password, token and query; of headers, only
-- the names.
create or replace view queues.outbox_status with (security_barrier) as
select s.subscription_id, s.name, s.event_types, s.type_prefixes, s.namespaces, s.sink,
  pg_catalog.regexp_replace(pg_catalog.regexp_replace(pg_catalog.regexp_replace(s.target,
    '^([a-z][a-z0-9+.-]*://[^:/@?#]*):[^/?#]*@', '\1:***@', 'i'), '^([a-z][a-z0-9+.-]*://)[^:/@?#]+@', '\1***@', 'i'),
    '[?#].*$', '?***') as target,
      case when s.options ? 'headers' then s.options - 'headers' || pg_catalog.jsonb_build_object('headers', (
    select pg_catalog.jsonb_object_agg(h.key,
      case when h.value ~ '^env:HOLDFAST_SINK_[A-Za-z0-9_]+$' then h.value else '***' end)
    from pg_catalog.jsonb_each_text(case pg_catalog.jsonb_typeof(s.options -> 'headers')
      when 'object' then s.options -> 'headers' end) h))
    else s.options end as options,
  pg_catalog.cardinality(s.secrets) as secrets, s.max_attempts, s.created_at, s.created_by,
  s.paused_at, s.paused_by, s.pause_reason,
  coalesce(waiting.pending, 0) as pending, coalesce(waiting.in_flight, 0) as in_flight, waiting.oldest,
  (select pg_catalog.count(*) from (
    select from queues.dead_delivery d where d.subscription_id = s.subscription_id
    order by d.died_at limit 10000) d) as dead,
  case when b.open_until is null then 'closed' when b.open_until > queues.clock() then 'open'
    else 'half-open' end as breaker,
  coalesce(b.failures, 0) as failures, b.open_until, b.last_failure_at, b.last_error, (
    select pg_catalog.format('dispatcher on %s: %s', d.hostname, d.unusable ->> s.subscription_id::text)
    from queues.dispatcher d
    where d.unusable ? s.subscription_id::text and d.last_seen > queues.clock() - (
      select w.value * interval '1 second' from queues.setting w where w.name = 'worker_timeout_seconds')
    order by d.last_seen desc limit 1) as problem
from queues.subscription s
left join lateral (
  select b.* from queues.breaker b where b.subscription_id = s.subscription_id
  order by b.open_until desc nulls last, b.last_failure_at desc nulls last limit 1) b on true
left join lateral (
  select pg_catalog.count(*) as pending, pg_catalog.count(*) filter (where d.lease_until >= now.now) as in_flight,
    pg_catalog.min(d.emitted_at) as oldest
  from (select queues.clock() as now offset 0) now
  cross join (
    select d.lease_until, d.emitted_at from queues.delivery d where d.subscription_id = s.subscription_id
    order by d.namespace, d.aggregate_id, d.event_number limit 10000) d) waiting on true
where s.removed_at is null;

comment on view queues.outbox_status is
  'The state of each subscription: what it matches, what is outstanding, and whether its receiver responds.';

-- Acts on subscriptions, by whom and why.
create or replace view queues.subscription_event with (security_barrier) as
select a.act_id, a.subscription, a.act, a.occurred_at, a.actor, a.reason, a.event_id, a.events
from queues.subscription_act a;

comment on view queues.subscription_event is 'Acts on subscriptions, by whom and why.';

-- The subscriptions to events that the engine itself emits. Internal: every finish looks whether there is one.
create or replace view queues.engine_subscription as
select s.subscription_id from queues.subscription s where s.engine_events;

comment on view queues.engine_subscription is 'The subscriptions to events that the engine itself emits.';
