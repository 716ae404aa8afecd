-- Version 2 except generations, which come next: what a commit leaves to be done is a row of queues.chore, the cause of
-- a cancellation is a column, failed tries of steps are errors, events have namespaces, and signals a size. A column
-- that does not come last stands where it takes the least space: its table is written anew.

-- Facts are rewritten here. The functions of this release put the triggers back.
do $$
declare
  _trigger record;
begin
  for _trigger in
    select t.tgname, c.oid::pg_catalog.regclass as on_table
    from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid
    where c.relnamespace = 'queues'::pg_catalog.regnamespace
      and t.tgname in ('append_only', 'removed_by_retention_only')
  loop
    execute pg_catalog.format('drop trigger %I on %s', _trigger.tgname, _trigger.on_table);
  end loop;
end
$$;

drop view queues.delivery_status, queues.outbox_status, queues.queue_status, queues.signal_status, queues.step_status,
  queues.step_try_status, queues.worker_status;

alter table queues.lane_hoarder set schema internal;
create table queues.lane_hoarder (
  hoarder_id bigint generated always as identity constraint lane_hoarder_pkey primary key,
  namespace text collate "C" not null,
  noticed_at timestamptz not null
);
comment on table queues.lane_hoarder is 'Namespaces that have reached the limit on lanes.';
insert into queues.lane_hoarder (namespace, noticed_at) select h.namespace, h.noticed_at from internal.lane_hoarder h;
drop table internal.lane_hoarder;

alter table queues.task
  set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.02);

alter table queues.outcome
  add column cause "char" constraint known_cause check (cause in ('d', 'p', 's')),
  add column cause_id uuid,
  set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.02);
comment on column queues.outcome.cause is
  'Why the engine cancelled it: d a task before it did not succeed, p its parent did not succeed, s the step of its '
  'parent that waited for it is over. Null if the engine did not.';
comment on column queues.outcome.cause_id is 'The task before it, or its parent.';

-- Version 1 knew causes only from these sentences, of outcomes and of tasks that were still to be cancelled.
create function internal.cause_of_version_1(reason text, out cause "char", out cause_id uuid)
language sql immutable
as $$
  select c.cause::"char", (pg_catalog.regexp_match(reason, c.sentence))[1]::uuid
  from (values
    ('d', '^after: ([0-9a-f-]{36}) (?:ended \w+|was deleted)$'),
    ('p', '^its parent ([0-9a-f-]{36}) (?:ended \w+|was deleted)$'),
    ('s', ' of its parent ([0-9a-f-]{36}) is over$')) c(cause, sentence)
  where reason ~ c.sentence limit 1
$$;
update queues.outcome o set cause = c.cause, cause_id = c.cause_id
from (
  select n.task_id, c.cause, c.cause_id
  from queues.outcome n cross join lateral internal.cause_of_version_1(n.reason) c
  where n.status = 'cancelled' and c.cause is not null) c
where o.task_id = c.task_id;

create table queues.chore (
  chore_id bigint generated always as identity,
  added_at timestamptz not null,
  task_id uuid not null,
  cause_id uuid,
  kind "char" not null constraint known_chore check (kind in ('w', 'c', 'j')),
  cause "char" constraint known_cause_of_chore check (cause in ('d', 'p', 's')),
  reason text,
  error text,
  constraint chore_pkey primary key (kind, chore_id),
  constraint cancellation_has_a_cause check ((kind = 'c') = (cause is not null and cause_id is not null))
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index chores_of_task on queues.chore (task_id);
comment on table queues.chore is
  'What the engine has to do soon, in transactions and a name of its own: see queues.do_chores.';
comment on column queues.chore.kind is
  'w the wait of this run may be over; c this task is to be cancelled; j joins that wait for tasks after this one are '
  'still to be looked at.';
comment on column queues.chore.cause is
  'Of a cancellation: d a task before it did not succeed, p its parent did not succeed, s the step of its parent that '
  'waited for it is over.';
comment on column queues.chore.cause_id is 'The task before it, or its parent.';
comment on column queues.chore.reason is 'The same for people.';
comment on column queues.chore.error is 'Why it failed, if it did. It is tried again after the others.';
insert into queues.chore (kind, added_at, task_id, cause, cause_id, reason)
select 'c', queues.clock(), u.task_id, c.cause, c.cause_id, u.reason
from queues.unwanted u cross join lateral internal.cause_of_version_1(u.reason) c where c.cause is not null;
insert into queues.chore (kind, added_at, task_id)
select distinct 'w'::"char", queues.clock(), r.task_id from queues.recheck r;
drop table queues.unwanted, queues.recheck, queues.join_cursor;
drop function internal.cause_of_version_1(text);

alter table queues.error
  add column step text collate "C",
  add column step_try integer,
  add column step_tries integer,
  add column generation integer not null default 1;
create index tries_to_look_into on queues.error (error_id)
  where step is not null and (step_try >= 2 or retry_at - occurred_at > interval '10 minutes');
comment on table queues.error is
  'Every failed attempt, and the newest 50 failed tries of each step that is repeated. Append-only.';
comment on column queues.error.step is
  'The step of which a try failed: it is repeated at retry_at, and the attempt goes on. Null if the attempt failed.';
comment on column queues.error.step_tries is 'How many tries the step has in all.';
comment on column queues.error.generation is 'The generation of the run that failed.';
insert into queues.error (task_id, token, occurred_at, retry_at, attempt, recovered, kind, message, detail, step,
  step_try)
select y.task_id, y.token, y.occurred_at, y.retry_at, 0, false,
  pg_catalog.left(coalesce(
    case when pg_catalog.jsonb_typeof(y.error) = 'object' then y.error ->> 'kind' end, 'handler_error'), 200),
  pg_catalog.left(coalesce(
    case when pg_catalog.jsonb_typeof(y.error) = 'object' then y.error ->> 'message' end, y.error::text, 'no message'),
    8192), y.error, y.name, y.try
from (
  select y.*, row_number() over (partition by y.task_id, y.name order by y.try desc) as age from queues.step_try y) y
where y.age <= 50 order by y.occurred_at, y.task_id, y.name, y.try;
drop table queues.step_try;
alter table queues.error_group add column step text;
comment on column queues.error_group.step is 'The step that failed last with it, if tries of steps failed.';

alter table queues.signal set schema internal;
create table queues.signal (
  signal_id bigint generated always as identity constraint signal_pkey primary key,
  task_id uuid not null,
  sent_at timestamptz not null,
  bytes integer not null,
  name text collate "C" not null,
  key text collate "C",
  sent_by text collate "C" not null,
  payload jsonb not null
);
create index signals_of_run on queues.signal (task_id, name, signal_id);
create unique index one_signal_per_key on queues.signal (task_id, name, key) where key is not null;
comment on table queues.signal is
  'The mailbox of each run, for all of its generations: messages that its waits take, oldest first. Append-only.';
comment on column queues.signal.bytes is 'The length of the payload as text, by which untaken signals are limited.';
comment on column queues.signal.key is 'A repeated signal with the same key is not kept twice.';
insert into queues.signal (signal_id, task_id, sent_at, bytes, name, key, sent_by, payload) overriding system value
select s.signal_id, s.task_id, s.sent_at, pg_catalog.octet_length(s.payload::text), s.name, s.key, s.sent_by, s.payload
from internal.signal s;
do $$
begin
  perform pg_catalog.setval('queues.signal_signal_id_seq', s.last_value, s.is_called)
  from internal.signal_signal_id_seq s;
end
$$;
drop table internal.signal;

-- It is due when those before it have ended, but not before its own time. Version 1 did not know that time here.
comment on column queues.wait.until is
  'When the wait is over in any case. Of a task that comes after others: when it is due at the earliest.';
update queues.wait w set until = t.run_at
from queues.task t where t.task_id = w.task_id and w.name = '' and w.policy in ('succeeded', 'ended');

alter table queues.worker set schema internal;
create table queues.worker (
  worker_id text collate "C" constraint worker_pkey primary key,
  hostname text not null,
  pid integer,
  version text,
  queues text[] not null,
  type_prefixes text[] not null,
  types text[] not null default '{}',
  concurrency integer not null,
  in_flight integer not null,
  running integer not null,
  idle boolean not null,
  started_at timestamptz not null,
  last_heartbeat timestamptz not null,
  listed_at timestamptz,
  timeout interval not null,
  heartbeat interval not null,
  memory_bytes bigint constraint memory_is_a_size check (memory_bytes >= 0),
  finished bigint constraint finished_is_a_count check (finished >= 0),
  per_second real constraint per_second_is_a_rate check (per_second >= 0 and per_second < 'infinity'),
  troubles jsonb
) with (fillfactor = 50);
create index worker_to_wake on queues.worker (worker_id) where idle;
comment on table queues.worker is 'The running workers. One row per process start, one update per heartbeat.';
comment on column queues.worker.types is 'The types that it has declared: it has handlers for them.';
comment on column queues.worker.in_flight is
  'Leases that its last heartbeat renewed: running tasks, and tasks claimed in advance.';
comment on column queues.worker.heartbeat is
  'How often it sends a heartbeat. After two missing heartbeats, it counts as late.';
comment on column queues.worker.listed_at is
  'When it last listed all of its tasks that have begun. One not begun when its lease ended keeps its attempt.';
comment on column queues.worker.memory_bytes is 'The resident memory of its process, as it last reported.';
comment on column queues.worker.finished is 'How many attempts have ended since it started.';
comment on column queues.worker.per_second is 'How many of them ended per second, over the last five minutes.';
comment on column queues.worker.troubles is
  'Up to 20 of the runs that its last heartbeat named because something delays them: task_id, token, trouble.';
comment on column queues.worker.timeout is 'How long it may be silent before it counts as dead.';
insert into queues.worker (worker_id, hostname, pid, version, queues, type_prefixes, concurrency, in_flight, running,
  idle, started_at, last_heartbeat, timeout, heartbeat, memory_bytes, finished, per_second)
select w.worker_id, w.hostname, w.pid, w.version, w.queues, w.type_prefixes, w.concurrency, w.in_flight, w.running,
  w.idle, w.started_at, w.last_heartbeat, w.timeout, w.heartbeat, w.memory_bytes, w.finished, w.per_second
from internal.worker w;
drop table internal.worker;

drop table queues.last_sweep;
create unlogged table queues.last_sweep (
  only_one boolean constraint one_last_sweep primary key default true constraint last_sweep_is_one_row check (only_one),
  swept_at timestamptz not null,
  reachable_since timestamptz not null default '-infinity',
  next_expiry timestamptz,
  next_page bigint not null
) with (fillfactor = 50);
insert into queues.last_sweep (swept_at, next_page) values ('-infinity', 0);
comment on table queues.last_sweep is 'When leases were last swept, so that workers notice when none does.';
comment on column queues.last_sweep.reachable_since is
  'When the first sweep was after there had been none for five seconds: workers had not reached the database.';
comment on column queues.last_sweep.next_expiry is
  'No lease that the sweep saw ends earlier, because a lease is only prolonged; null if it saw none.';
comment on column queues.last_sweep.next_page is 'Where the next sweep begins; not 0 only if the table is very large.';

create table queues.retention_mark (
  status text collate "C" constraint retention_mark_pkey primary key,
  past uuid not null,
  full_pass_at timestamptz not null
) with (fillfactor = 50);
comment on table queues.retention_mark is
  'Where the next pass of retention over tasks of a status begins. One row per status.';
comment on column queues.retention_mark.past is
  'The oldest task that is not too young. Those before it were kept: because of another policy, or they had not ended.';
comment on column queues.retention_mark.full_pass_at is
  'When a pass last began at the oldest task of all; once a day, it looks again at those that were kept.';
insert into queues.retention_mark (status, past, full_pass_at)
select distinct r.status, '00000000-0000-0000-0000-000000000000'::uuid, '-infinity'::timestamptz
from queues.retention r where r.status <> 'history';

drop index queues.schedule_to_fire, queues.schedule_from_the_future;
create index schedule_to_fire on queues.schedule (namespace, next_at) where paused_at is null and orphaned_at is null;
create index schedule_decided on queues.schedule (namespace, decided_at);

alter type queues.health_line add attribute error text cascade;

create unlogged table internal.call (
  transaction_id xid8 constraint call_pkey primary key,
  namespace text collate "C" not null,
  actor text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
comment on table internal.call is
  'The transaction that calls a function of a process: for which namespace, and who has it called.';

alter table queues.subscription set schema internal;
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
insert into queues.subscription (subscription_id, name, event_types, type_prefixes, namespaces, event_patterns,
  prefix_patterns, engine_events, sink, target, options, secrets, max_attempts, created_at, created_by, paused_at,
  paused_by, pause_reason, removed_at, removed_by) overriding system value
select s.subscription_id, s.name, s.event_types, s.type_prefixes, '{}', s.event_patterns, s.prefix_patterns,
  s.engine_events, s.sink, s.target, s.options, s.secrets, s.max_attempts, s.created_at, s.created_by, s.paused_at,
  s.paused_by, s.pause_reason, s.removed_at, s.removed_by
from internal.subscription s;
do $$
begin
  perform pg_catalog.setval('queues.subscription_subscription_id_seq', s.last_value, s.is_called)
  from internal.subscription_subscription_id_seq s;
end
$$;
drop table internal.subscription;

alter table queues.delivery set schema internal;
alter table queues.breaker set schema internal;
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
insert into queues.breaker (subscription_id, namespace, failures, openings, open_until, probe_token, last_failure_at,
  last_error)
select b.subscription_id, d.namespace, b.failures, b.openings, b.open_until, b.probe_token, b.last_failure_at,
  b.last_error
from internal.breaker b
join (
  select distinct d.subscription_id, e.namespace
  from internal.delivery d join queues.outbox_event e on e.event_id = d.event_id) d
  on d.subscription_id = b.subscription_id;
drop table internal.breaker;

comment on column queues.outbox_event.namespace is 
  'That of the task for an event about a task; otherwise that of the login that emitted it.';
comment on column queues.outbox_event.transaction_id is
  'Lets a reader tell which events may still be preceded by an earlier number of an open transaction. The id of the '
  'transaction that wrote it, plus the shift of queues.event_order at that time.';
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
insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at, due_at,
  attempt, counted, token, lease_until, dispatcher_id, last_error)
select d.subscription_id, e.namespace, d.aggregate_id, d.event_number, d.event_id, d.emitted_at, d.due_at, d.attempt,
  d.counted, d.token, d.lease_until, d.dispatcher_id, d.last_error
from internal.delivery d join queues.outbox_event e on e.event_id = d.event_id;
drop table internal.delivery;

-- With the functions that take it, which come back in another form.
drop type queues.delivery_report cascade;
create type queues.delivery_report as (
  subscription_id integer,
  namespace text,
  token bigint,
  status text,
  error text
);
alter type queues.new_event add attribute namespace text cascade;

insert into queues.setting (name, value, description) values
  ('max_schedules', 1000, 'maximum number of schedules of one namespace, including paused and orphaned ones'),
  ('max_signals', 1000, 'maximum number of signals that one run may have not taken yet'),
  ('max_signal_bytes', 16777216, 'largest total of the signals that one run may have not taken yet');
update queues.setting s set description =
  'largest total of the results that the steps of one run may store, and that its joins may read'
where s.name = 'max_memo_bytes';
