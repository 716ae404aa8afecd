-- A run that goes on by ctx.continue_as stays one task: its generations replace the chains of tasks of version 1.

alter table queues.task add column generation integer;
comment on table queues.task is
  'The request of a task: written once, but that ctx.continue_as changes its payload; removed only by retention.';
comment on column queues.task.payload is 'Of the current generation: see queues.generation.';
comment on column queues.task.generation is
  'How often it has begun by ctx.continue_as, and once more. Null, which takes no space, for the first generation.';

alter table queues.lease add column generation integer;
comment on column queues.lease.generation is
  'The same as that of the task, which does not change while the lease is held.';

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
comment on table queues.generation is
  'A fact: this generation of a run ended by ctx.continue_as, and the next one began at once. Append-only. Retention '
  'removes all but the first and the last.';
comment on column queues.generation.number is 'From 1 on. That of the current one is in queues.task.';
comment on column queues.generation.pruned is
  'Whether retention has removed what it remembered. The first stays because an idempotency key belongs to its '
  'payload, and the last because it tells when the current one began.';
comment on column queues.generation.payload is 'The arguments with which it was called.';

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
comment on table queues.step is 'A fact: this step of this run came to this end. Append-only; the first write wins.';
comment on column queues.step.token is 'The claim under which it was recorded.';
comment on column queues.step.generation is 'The generation of the run that recorded it, and that alone remembers it.';
comment on column queues.step.number is 'The order within the run, given by the worker.';
comment on column queues.step.kind is
  's step, t transaction, z sleep, m signal (that a wait took, or its timeout), c children, f first, n since, '
  'r removed by retention.';
comment on column queues.step.until is
  'Of a sleep: when it is over. A sleep is recorded when it begins. Of since: when the change was first seen.';
comment on column queues.step.signal_id is 'The signal that a wait took.';
comment on column queues.step.arguments is
  'What its function was called with, by the names of its parameters: at most 2 KiB, else how it begins.';

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
comment on table queues.child is 'A fact: this step of this run has started this task. Append-only.';
comment on column queues.child.step is
  'The name of the step. Empty if the task waits for that one before it begins (after).';
comment on column queues.child.generation is
  'The generation of the run that started it. 1 if the task waits for that one before it begins.';
comment on column queues.child.awaited is 'Whether the step waits for it.';
comment on column queues.child.ends_with_parent is
  'Whether it is cancelled if the run ends without success while the step waits for it.';
comment on column queues.child.needs_success is
  'Of a task that comes after others: whether they have to succeed, or only to end. Null if a step started it.';
comment on column queues.child.key is 'By which a resumed run finds it, where it was given one.';

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
comment on table queues.claim_position is
  'Where the last large claims from a lane have ended. The newest counts; those before it are soon deleted.';
comment on column queues.claim_position.since is 'When a claim has last begun the lane anew.';
comment on column queues.claim_position.is_empty is 'Whether that claim found no more due tasks.';

alter table queues.sample add column counting interval;
comment on column queues.sample.counting is
  'How long it took to count the tasks, or null if they were not counted. The next count waits fifty times as long.';

-- What health found is told by a code with facts, and no longer in words.
alter type queues.health_line
  drop attribute message, drop attribute advice, drop attribute error,
  add attribute code text, add attribute facts jsonb, add attribute error text;
