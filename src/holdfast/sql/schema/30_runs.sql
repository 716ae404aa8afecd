-- Durable runs: what a run remembers, is sent, starts and waits for, and its generations. Also chores and keys of
-- unique tasks.
-- Explained in docs/design/runs.md.

-- Separate from the worker's row, which is removed with the worker.
create table queues.worker_environment (
  worker_id text collate "C" constraint worker_environment_pkey primary key,
  recorded_at timestamptz not null,
  environment jsonb not null
);
comment on table queues.worker_environment is
  'The environment of each start of a worker: versions, commit, host. Append-only.';

-- Durable workflows. A run is a task whose handler has steps: no table of its own, and no state of its own. A suspended
-- run is a row in queues.ready, due when it has to look again, and the rows in queues.wait say what it waits for.

-- Narrow, because a run writes one row per step: fixed-width columns first, no index besides the key, and times as the
-- end and a duration. queues.step_status shows the words.
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

-- State, not a fact. A row stays until its run suspends without it or ends, so that a wait keeps its timeout through
-- failed attempts.
create table queues.wait (
  task_id uuid not null,
  name text collate "C" not null,
  until timestamptz not null,
  signal text collate "C",
  on_task uuid,
  number integer,
  policy text collate "C",
  constraint wait_pkey primary key (task_id, name)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index waits_on_task on queues.wait (on_task) where on_task is not null;
comment on table queues.wait is
  'What a suspended run waits for, each until a time: a signal, another task, or only the time.';
comment on column queues.wait.until is
  'When the wait is over in any case. Of a task that comes after others: when it is due at the earliest.';
comment on column queues.wait.signal is 'The name of the signal.';
comment on column queues.wait.on_task is
  'The first of the awaited tasks that has not ended. When it has, the pointer moves on: see queues.advance_joins.';
comment on column queues.wait.number is 'The place of that task among the children of the step.';
comment on column queues.wait.policy is
  'Of a join: all (every child has ended), first (this one has), ended or succeeded (all that the task comes after).';

-- The task that holds a key of unique or debounced tasks, until another one takes its place. An enqueue locks the row
-- until its transaction ends, so that two enqueues of one key follow each other. For tasks whose key is their spec, the
-- type is empty.
create table queues.unique_task (
  type text collate "C" not null,
  key text collate "C" not null,
  namespace text collate "C" not null,
  task_id uuid,
  first_at timestamptz,
  constraint one_task_per_unique_key primary key (type, key, namespace)
);
create index unique_key_of_task on queues.unique_task (task_id);
comment on table queues.unique_task is 'State: the last task that was enqueued as unique or debounced with this key.';
comment on column queues.unique_task.first_at is
  'Of debounced tasks: when the first of those that replaced each other was enqueued.';

-- State: what is left to do after a commit, each row by the first look that finds its task unlocked. A transaction
-- that ends a run must not wait for locks of its children, and there may be many; a suspension and a signal that found
-- no waiting run each leave a row, so that whichever commits last is seen by a look that comes after both.
-- A task may have several rows: two sessions that leave one for the same task must not wait for each other.
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

insert into queues.setting (name, value, description) values
  ('max_children', 100000, 'maximum number of tasks that one run may start'),
  ('max_steps', 10000, 'maximum number of steps of one run'),
  ('max_memo_bytes', 16777216,
    'largest total of the results that the steps of one run may store, and that its joins may read'),
  ('max_signals', 1000, 'maximum number of signals that one run may have not taken yet'),
  ('max_signal_bytes', 16777216, 'largest total of the signals that one run may have not taken yet');

-- When code with ctx.since(name) was first seen, so that runs enqueued before keep their way.
create table queues.change (
  type text collate "C" not null,
  name text collate "C" not null,
  first_seen_at timestamptz not null,
  constraint one_first_time_per_change primary key (type, name)
);
comment on table queues.change is 'When the code of a type first asked ctx.since for a name. Append-only.';

-- A run that goes on by ctx.continue_as stays the same task: it only begins again with another payload and no memory.
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

-- What a search asks for, in the form in which tasks are compared with it.
create type queues.wanted_text as (
  words text,
  error_group uuid,
  path jsonpath,
  search_errors boolean
);
