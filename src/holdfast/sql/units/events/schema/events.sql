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
