-- Version 2, generations last: what a commit leaves to be done is a row of queues.chore, the cause of a cancellation is
-- a column, failed tries of steps are errors, events have namespaces, and signals a size. A column that does not come
-- last stands where it takes the least space: its table is written anew.

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
insert into queues.lane_hoarder (namespace, noticed_at) select h.namespace, h.noticed_at from internal.lane_hoarder h;
drop table internal.lane_hoarder;

alter table queues.task
  set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.02);

alter table queues.outcome
  add column cause "char" constraint known_cause check (cause in ('d', 'p', 's')),
  add column cause_id uuid,
  set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.02);

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

create table queues.retention_mark (
  status text collate "C" constraint retention_mark_pkey primary key,
  past uuid not null,
  full_pass_at timestamptz not null
) with (fillfactor = 50);
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

create table queues.event_order (
  only_one boolean constraint event_order_pkey primary key default true
    constraint event_order_is_one_row check (only_one),
  shift bigint not null,
  newest bigint not null
) with (fillfactor = 50);
insert into queues.event_order (shift, newest) values (0, 0);

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

-- A run that goes on by ctx.continue_as stays one task: its generations replace the chains of tasks of version 1.

alter table queues.task add column generation integer;

alter table queues.lease add column generation integer;

alter table queues.act drop constraint known_act;
alter table queues.act add constraint known_act check (act in (
  'cancelled', 'retried', 'deleted', 'restored', 'rescheduled', 'paused', 'resumed', 'released', 'snoozed',
  'suspended', 'replaced', 'continued'));

create table queues.generation (
  task_id uuid not null,
  ended_at timestamptz not null,
  number integer not null,
  pruned boolean,
  payload jsonb not null,
  constraint generation_in_order primary key (task_id, number)
);
create index generations_to_prune on queues.generation (ended_at) where pruned is null;

-- The tasks of each chain. Retention may have removed the first ones: the oldest that is left gives the task its id.
create table queues.run_of_version_1 as
with recursive run as (
  select c.task_id as first_id, c.task_id, 1 as number
  from queues.continuation c
  where exists (select from queues.task t where t.task_id = c.task_id)
    and not exists (
      select from queues.continuation b join queues.task t on t.task_id = b.task_id where b.next_id = c.task_id)
  union all
  select r.first_id, c.next_id, r.number + 1
  from run r join queues.continuation c on c.task_id = r.task_id
  where exists (select from queues.task t where t.task_id = c.next_id))
select r.first_id, r.task_id, r.number, r.number = max(r.number) over (partition by r.first_id) as is_last from run r;
create unique index on queues.run_of_version_1 (task_id);
analyze queues.run_of_version_1;

insert into queues.generation (task_id, ended_at, number, payload)
select m.first_id, coalesce(o.finished_at, t.created_at), m.number, t.payload
from queues.run_of_version_1 m
join queues.task t on t.task_id = m.task_id
left join queues.outcome o on o.task_id = m.task_id
where not m.is_last;

insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, data)
select m.first_id, 'continued', o.finished_at, o.token, o.attempt, o.worker_id, session_user,
  pg_catalog.jsonb_build_object('claimed_at', o.claimed_at, 'started_at', o.started_at, 'generation', m.number + 1)
from queues.run_of_version_1 m join queues.outcome o on o.task_id = m.task_id
where not m.is_last order by o.finished_at;

-- The state of the task is that of the last one.
delete from queues.outcome o using queues.run_of_version_1 m where o.task_id = m.task_id and not m.is_last;
delete from queues.deletion d using queues.run_of_version_1 m where d.task_id = m.task_id and not m.is_last;
update queues.outcome o set task_id = m.first_id
from queues.run_of_version_1 m where o.task_id = m.task_id and m.is_last;
update queues.deletion d set task_id = m.first_id
from queues.run_of_version_1 m where d.task_id = m.task_id and m.is_last;
update queues.ready r set task_id = m.first_id from queues.run_of_version_1 m where r.task_id = m.task_id;
update queues.lease l set task_id = m.first_id, generation = nullif(m.number, 1)
from queues.run_of_version_1 m where l.task_id = m.task_id;
delete from queues.wait w using queues.run_of_version_1 m where w.task_id = m.task_id and not m.is_last;
update queues.wait w set task_id = m.first_id from queues.run_of_version_1 m where w.task_id = m.task_id;
update queues.wait w set on_task = m.first_id from queues.run_of_version_1 m where w.on_task = m.task_id;
update queues.chore c set task_id = m.first_id from queues.run_of_version_1 m where c.task_id = m.task_id;
update queues.chore c set cause_id = m.first_id from queues.run_of_version_1 m where c.cause_id = m.task_id;
update queues.outcome o set cause_id = m.first_id from queues.run_of_version_1 m where o.cause_id = m.task_id;
update queues.task_key k set task_id = m.first_id from queues.run_of_version_1 m where k.task_id = m.task_id;
update queues.unique_task u set task_id = m.first_id from queues.run_of_version_1 m where u.task_id = m.task_id;
update queues.reusable r set task_id = m.first_id from queues.run_of_version_1 m where r.task_id = m.task_id;
delete from queues.waiter w using queues.run_of_version_1 m where w.task_id = m.task_id and m.task_id <> m.first_id;
update queues.act a set task_id = m.first_id
from queues.run_of_version_1 m where a.task_id = m.task_id and m.task_id <> m.first_id;
update queues.error e set task_id = m.first_id, generation = m.number
from queues.run_of_version_1 m where e.task_id = m.task_id and m.task_id <> m.first_id;
create unique index one_error_per_try on queues.error (task_id, generation, step, step_try) where step is not null;

-- A signal that a run had not taken was copied for the next one. One that came too late to be copied is kept, and the
-- run gets it now. A key that was taken twice stays with the first signal.
delete from queues.signal s
using queues.run_of_version_1 m, queues.run_of_version_1 n
where s.task_id = m.task_id and n.first_id = m.first_id and n.number = m.number + 1
  and not exists (select from queues.step p where p.signal_id = s.signal_id)
  and exists (
    select from queues.signal c
    where c.task_id = n.task_id and c.name = s.name and c.sent_at = s.sent_at and c.key is not distinct from s.key
      and c.payload = s.payload);
with signal as (
  select s.signal_id, m.first_id, row_number() over (
    partition by m.first_id, s.name, s.key order by m.number, s.signal_id) as place
  from queues.signal s join queues.run_of_version_1 m on m.task_id = s.task_id
  where s.key is not null)
update queues.signal s set key = null from signal d where s.signal_id = d.signal_id and d.place > 1;
update queues.signal s set task_id = m.first_id
from queues.run_of_version_1 m where s.task_id = m.task_id and m.task_id <> m.first_id;

update queues.task t set payload = l.payload, generation = m.number
from queues.run_of_version_1 m join queues.task l on l.task_id = m.task_id
where m.is_last and m.number > 1 and t.task_id = m.first_id;
delete from queues.task t using queues.run_of_version_1 m where t.task_id = m.task_id and m.task_id <> m.first_id;

-- Rows of steps and children are many: they are written anew, so that the column stands where it takes the least space.
alter table queues.step set schema internal;
create table queues.step (
  token bigint not null,
  ended_at timestamptz not null,
  task_id uuid not null,
  generation integer not null default 1,
  number integer not null,
  took_ms integer not null,
  tries smallint not null,
  kind "char" not null,
  name text collate "C" not null,
  result jsonb,
  error jsonb,
  until timestamptz,
  signal_id bigint,
  arguments jsonb,
  constraint one_end_per_step primary key (task_id, generation, name)
);
insert into queues.step (token, ended_at, task_id, generation, number, took_ms, tries, kind, name, result, error, until,
  signal_id)
select s.token, s.ended_at, coalesce(m.first_id, s.task_id), coalesce(m.number, 1), s.number, s.took_ms, s.tries,
  s.kind, s.name, s.result, s.error, s.until, s.signal_id
from internal.step s left join queues.run_of_version_1 m on m.task_id = s.task_id;
drop table internal.step;
create unique index one_step_takes_a_signal on queues.step (signal_id) where signal_id is not null;

alter table queues.child set schema internal;
create table queues.child (
  parent_id uuid not null,
  generation integer not null default 1,
  step text collate "C" not null,
  number integer not null,
  child_id uuid not null,
  awaited boolean not null,
  ends_with_parent boolean not null,
  needs_success boolean,
  key text collate "C",
  constraint child_in_order primary key (parent_id, generation, step, number)
);
insert into queues.child (parent_id, generation, step, number, child_id, awaited, ends_with_parent, needs_success, key)
select coalesce(p.first_id, c.parent_id), coalesce(p.number, 1), c.step, c.number, coalesce(m.first_id, c.child_id),
  c.awaited, c.ends_with_parent, case when c.step = '' then
    exists (select from queues.wait w where w.task_id = c.parent_id and w.name = '' and w.policy = 'succeeded')
    or exists (select from queues.chore h where h.task_id = c.parent_id and h.cause = 'd')
    or exists (select from queues.outcome o where o.task_id = c.parent_id and o.cause = 'd') end, c.key
from internal.child c
left join queues.run_of_version_1 p on p.task_id = c.parent_id
left join queues.run_of_version_1 m on m.task_id = c.child_id;
drop table internal.child;
create index parent_of_child on queues.child (child_id);

drop table queues.continuation;
drop table queues.run_of_version_1;

create unlogged table queues.claim_position (
  lane_id bigint not null,
  number bigint not null,
  run_at timestamptz not null,
  task_id uuid not null,
  since timestamptz not null,
  is_empty boolean not null,
  constraint claim_position_pkey primary key (lane_id, number)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

alter table queues.sample add column counting interval;

-- What health found is told by a code with facts, and no longer in words.
alter type queues.health_line
  drop attribute message, drop attribute advice, drop attribute error,
  add attribute code text, add attribute facts jsonb, add attribute error text;
