-- Events: the outbox and the inbox. Functions are in the folder.

-- section: tables
-- Outgoing events, subscriptions and deliveries, and the inbox. The state of a delivery is the row that it has:
-- delivery while it is outstanding, then delivered or dead_delivery.

create table queues.subscription (
  subscription_id integer generated always as identity constraint subscription_pkey primary key,
  name text collate "C" not null,
  event_types text[] not null constraint asks_for_something check (cardinality(event_types) > 0),
  type_prefixes text[] not null,
  namespaces text[] not null,
  event_patterns text[] not null,
  prefix_patterns text[] not null,
  engine_events boolean not null,
  sink text collate "C" not null,
  target text not null,
  options jsonb not null,
  secrets text[] not null,
  max_attempts integer not null constraint at_least_one_delivery check (max_attempts >= 1),
  created_at timestamptz not null,
  created_by text not null,
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  removed_at timestamptz,
  removed_by text
);
create unique index one_subscription_per_name on queues.subscription (name) where removed_at is null;
create index subscription_to_the_engine on queues.subscription (subscription_id) where engine_events;
comment on table queues.subscription is 'Which events are sent, and where to.';
comment on column queues.subscription.namespaces is 'Only events of these namespaces; empty for all.';
comment on column queues.subscription.event_patterns is
  'event_types in the form that LIKE ANY compares, without a sub-select.';
comment on column queues.subscription.engine_events is
  'Whether it matches events that the engine itself emits. Without such a row, ending a task writes nothing here.';
comment on column queues.subscription.secrets is
  'Signing secrets, newest first, or references to variables of the dispatcher. Only dispatchers can read them.';
comment on column queues.subscription.removed_at is
  'Set when it ended; queues.prune_events removes what is left of it.';

create table queues.breaker (
  subscription_id integer not null,
  namespace text collate "C" not null,
  failures integer not null,
  openings integer not null,
  open_until timestamptz,
  probe_token bigint,
  last_failure_at timestamptz,
  last_error text,
  constraint breaker_pkey primary key (subscription_id, namespace)
) with (fillfactor = 50);
comment on table queues.breaker is
  'How events of a namespace fare with a receiver: after consecutive failures, none is sent for a while, then a probe.';

create sequence queues.event_number as bigint;

create table queues.outbox_event (
  event_id uuid constraint outbox_event_pkey primary key,
  event_number bigint not null,
  transaction_id xid8 not null,
  occurred_at timestamptz not null,
  task_id uuid,
  event_type text collate "C" not null,
  aggregate_id text collate "C",
  subject text,
  source text,
  traceparent text,
  emitted_by text collate "C" not null,
  namespace text collate "C" not null,
  deliveries integer not null,
  data jsonb not null
);
create index events_in_order on queues.outbox_event (transaction_id, event_number);
create index events_of_task on queues.outbox_event (task_id) where task_id is not null;
create index events_nobody_asked_for on queues.outbox_event (occurred_at) where deliveries = 0;
comment on table queues.outbox_event is 'Outgoing events: written once, in the transaction that they describe.';
comment on column queues.outbox_event.namespace is 
  'That of the task for an event about a task; otherwise that of the login that emitted it.';
comment on column queues.outbox_event.event_number is 'The order within an aggregate.';
comment on column queues.outbox_event.transaction_id is
  'Lets a reader tell which events may still be preceded by an earlier number of an open transaction. The id of the '
  'transaction that wrote it, plus the shift of queues.event_order at that time.';

-- A cluster counts its transactions from the beginning, also if it has the rows of another one.
create table queues.event_order (
  only_one boolean constraint event_order_pkey primary key default true
    constraint event_order_is_one_row check (only_one),
  shift bigint not null,
  newest bigint not null
) with (fillfactor = 50);
insert into queues.event_order (shift, newest) values (0, 0);
comment on table queues.event_order is
  'What is added to the ids of transactions, so that events stay in order in a new cluster: see queues.event_shift.';
comment on column queues.event_order.newest is
  'The shifted id of a recent transaction, in case that no event is left that tells it.';

create table queues.delivery (
  subscription_id integer not null,
  namespace text collate "C" not null,
  aggregate_id text collate "C" not null,
  event_number bigint not null,
  event_id uuid not null,
  emitted_at timestamptz not null,
  due_at timestamptz not null,
  attempt integer not null,
  counted boolean not null,
  token bigint,
  lease_until timestamptz,
  dispatcher_id text collate "C",
  last_error text,
  constraint delivery_in_order primary key (subscription_id, namespace, aggregate_id, event_number)
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
comment on table queues.delivery is 
  'Outstanding deliveries. Of each aggregate of a namespace, only the first is claimed.';
comment on column queues.delivery.aggregate_id is 'That of the event; an event without one forms its own aggregate.';
comment on column queues.delivery.counted is
  'Whether the claim counted the attempt. It does so for the first event of an aggregate, which is certainly sent.';

create table queues.delivered (
  event_id uuid not null,
  subscription_id integer not null,
  delivered_at timestamptz not null,
  attempt integer not null,
  dispatcher_id text collate "C" not null,
  constraint one_delivery_per_event_and_subscription primary key (event_id, subscription_id)
);
create index delivered_to_prune on queues.delivered (delivered_at);
comment on table queues.delivered is 'Deliveries that succeeded.';

create table queues.dead_delivery (
  event_id uuid not null,
  subscription_id integer not null,
  died_at timestamptz not null,
  attempt integer not null,
  last_error text,
  constraint one_death_per_event_and_subscription primary key (event_id, subscription_id)
);
create index dead_deliveries_to_redrive on queues.dead_delivery (subscription_id, died_at);
create index dead_deliveries_to_prune on queues.dead_delivery (died_at);
comment on table queues.dead_delivery is 'Deliveries that used up all attempts, until they are redriven.';

create table queues.subscription_act (
  act_id bigint generated always as identity constraint subscription_act_pkey primary key,
  subscription text collate "C" not null,
  act text not null constraint known_subscription_act check (act in ('paused', 'resumed', 'redriven')),
  occurred_at timestamptz not null,
  actor text not null,
  reason text,
  event_id uuid,
  events integer
);
create index acts_on_subscription on queues.subscription_act (subscription, act_id);
comment on table queues.subscription_act is 'Acts on subscriptions, by whom and why. Append-only.';
comment on column queues.subscription_act.event_id is 'The event that was sent again, if it was one.';
comment on column queues.subscription_act.events is 'How many events were sent again.';

create table queues.dispatcher (
  dispatcher_id text collate "C" constraint dispatcher_pkey primary key,
  hostname text not null,
  pid integer,
  version text,
  waiting integer[] not null,
  sinks text[] not null,
  unusable jsonb not null,
  started_at timestamptz not null,
  last_seen timestamptz not null
) with (fillfactor = 50);
comment on table queues.dispatcher is 'The running dispatchers.';
comment on column queues.dispatcher.sinks is
  'The sinks that it knows: the built-in ones, and those of packages installed there.';
comment on column queues.dispatcher.unusable is 'The subscriptions that it cannot serve, and why, by subscription_id.';
comment on column queues.dispatcher.waiting is 'The subscriptions for which it waits to be woken. It polls the others.';

create table queues.received_event (
  namespace text collate "C" not null,
  source text collate "C" not null,
  event_id text collate "C" not null,
  received_at timestamptz not null,
  constraint received_once primary key (namespace, source, event_id)
);
create index received_to_prune on queues.received_event (received_at);
comment on table queues.received_event is
  'The inbox: events of other systems that were already received, per namespace.';

-- One event that is being emitted.
create type queues.new_event as (
  event_id uuid,
  event_type text,
  aggregate_id text,
  subject text,
  source text,
  task_id uuid,
  task_type text,
  traceparent text,
  data jsonb,
  namespace text
);

-- The result of one delivery, for its breaker.
create type queues.delivery_report as (
  subscription_id integer,
  namespace text,
  token bigint,
  status text,
  error text
);

-- section: functions
-- What core asks of events. A database without them has the functions of the same names below, which find nothing. Two
-- more are where they belong: emit_task_events and emit_worker_lost.
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

-- section: views
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

-- The running dispatchers.
create or replace view queues.dispatcher_status with (security_barrier) as
select d.dispatcher_id, d.hostname, d.pid, d.version, d.waiting, d.sinks, d.started_at, d.last_seen,
  d.last_seen > queues.clock() - (
    select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds') as live
from queues.dispatcher d;

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

-- Acts on subscriptions, by whom and why.
create or replace view queues.subscription_event with (security_barrier) as
select a.act_id, a.subscription, a.act, a.occurred_at, a.actor, a.reason, a.event_id, a.events
from queues.subscription_act a;

-- The subscriptions to events that the engine itself emits. Internal: every finish looks whether there is one.
create or replace view queues.engine_subscription as
select s.subscription_id from queues.subscription s where s.engine_events;

-- section: grants
-- The outbox. Only dispatchers can read secrets.
grant execute on function queues.emit, queues.receive to holdfast_client, holdfast_worker;
grant execute on function
  queues.dispatcher_heartbeat, queues.claim_events, queues.settle_events, queues.retire_dispatcher
to holdfast_dispatcher;
grant execute on function
  queues.subscribe, queues.unsubscribe, queues.pause_subscription, queues.resume_subscription, queues.rotate_secret,
  queues.test_subscription, queues.redrive_events
to holdfast_operator;
grant execute on function queues.prune_events, queues.prune_inbox to holdfast_worker, holdfast_operator;
grant execute on function queues.list_deliveries to holdfast_reader;
grant select on queues.subscription_event to holdfast_reader;
grant execute on function queues.tail_events to holdfast_reader, holdfast_client;
grant select on queues.outbox_status, queues.event_status, queues.delivery_status,
  queues.dispatcher_status to holdfast_reader;
grant select on queues.event_status, queues.delivery_status to holdfast_client;

-- section: facts
-- What should be the same on every shard, as text.
select 'subscription' as what, pg_catalog.format('%s to %s %s', o.name, o.sink, o.target) as fact
from queues.outbox_status o;

-- section: functions if absent
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

-- section: views if absent
-- What core reads in a database without events: a view of the same name, without rows.

-- No subscriptions, because there are no events. PostgreSQL knows without looking that it is empty.
create or replace view queues.engine_subscription as
select null::integer as subscription_id where false;
