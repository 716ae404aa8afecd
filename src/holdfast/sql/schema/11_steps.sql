-- Durable workflows. A run is a task whose handler has steps: no table of its own, and no state of its own. A suspended
-- run is a row in queues.ready, due when it has to look again, and the rows in queues.wait say what it waits for.

-- Narrow, because a run writes one row per step: fixed-width columns first, no index besides the key, and times as the
-- end and a duration. queues.step_status shows the words.
create table queues.step (
  token bigint not null,
  ended_at timestamptz not null,
  task_id uuid not null,
  number integer not null,
  took_ms integer not null,
  tries smallint not null,
  kind "char" not null,
  name text collate "C" not null,
  result jsonb,
  error jsonb,
  until timestamptz,
  signal_id bigint,
  constraint one_end_per_step primary key (task_id, name)
);
create unique index one_step_takes_a_signal on queues.step (signal_id) where signal_id is not null;
comment on table queues.step is 'A fact: this step of this run came to this end. Append-only; the first write wins.';
comment on column queues.step.token is 'The claim under which it was recorded.';
comment on column queues.step.number is 'The order within the run, given by the worker.';
comment on column queues.step.kind is
  's step, t transaction, z sleep, m signal (that a wait took, or its timeout), c children, f first, n since, '
  'r removed by retention.';
comment on column queues.step.until is 'Of a sleep: when it is over. A sleep is recorded when it begins.';
comment on column queues.step.signal_id is 'The signal that a wait took.';

create table queues.step_try (
  task_id uuid not null,
  name text collate "C" not null,
  try integer not null,
  token bigint not null,
  occurred_at timestamptz not null,
  retry_at timestamptz not null,
  error jsonb,
  constraint one_row_per_try primary key (task_id, name, try)
);
comment on table queues.step_try is 'A fact: this try of a step failed and is repeated at retry_at. Append-only.';

create table queues.signal (
  signal_id bigint generated always as identity constraint signal_pkey primary key,
  task_id uuid not null,
  sent_at timestamptz not null,
  name text collate "C" not null,
  key text collate "C",
  sent_by text collate "C" not null,
  payload jsonb not null
);
create index signals_of_run on queues.signal (task_id, name, signal_id);
create unique index one_signal_per_key on queues.signal (task_id, name, key) where key is not null;
comment on table queues.signal is 'The mailbox of each run: messages that its waits take, oldest first. Append-only.';
comment on column queues.signal.key is 'A repeated signal with the same key is not kept twice.';

create table queues.child (
  parent_id uuid not null,
  step text collate "C" not null,
  number integer not null,
  child_id uuid not null,
  awaited boolean not null,
  ends_with_parent boolean not null,
  key text collate "C",
  constraint child_in_order primary key (parent_id, step, number)
);
create index parent_of_child on queues.child (child_id);
comment on table queues.child is 'A fact: this step of this run has started this task. Append-only.';
comment on column queues.child.step is
  'The name of the step. Empty if the task waits for that one before it begins (after).';
comment on column queues.child.awaited is 'Whether the step waits for it.';
comment on column queues.child.ends_with_parent is
  'Whether it is cancelled if the run ends without success while the step waits for it.';
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
comment on column queues.wait.signal is 'The name of the signal.';
comment on column queues.wait.on_task is
  'The first of the awaited tasks that has not ended. When it has, the pointer moves on: see queues.advance_joins.';
comment on column queues.wait.number is 'The place of that task among the children of the step.';
comment on column queues.wait.policy is
  'Of a join: all (every child has ended), first (this one has), ended or succeeded (all that the task comes after).';

-- State: tasks that are to be cancelled, each by the first look that finds it unlocked. A transaction that ends a run
-- must not wait for locks of its children, and there may be many.
create table queues.unwanted (
  task_id uuid constraint unwanted_pkey primary key,
  reason text not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
comment on table queues.unwanted is
  'Tasks to be cancelled: children and dependants of runs that ended. See queues.cancel_unwanted.';

-- The task that holds a key of unique or debounced tasks, until another one takes its place. An enqueue locks the row
-- until its transaction ends, so that two enqueues of one key follow each other.
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

create table queues.join_cursor (
  on_task uuid not null
);
insert into queues.join_cursor values ('00000000-0000-0000-0000-000000000000');
comment on table queues.join_cursor is 'Up to where the last sweep has looked at joins.';

-- Written by a suspension and by a signal that found no waiting run, so that whichever commits last is seen by a look
-- that comes after both. Not unique: two signals to one run must not wait for each other.
create table queues.recheck (
  task_id uuid not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index recheck_of_run on queues.recheck (task_id);
comment on table queues.recheck is
  'Runs whose wait may be over already. queues.wake_waiting looks at them and removes them.';

insert into queues.setting (name, value, description) values
  ('max_children', 100000, 'maximum number of tasks that one run may start'),
  ('max_steps', 10000, 'maximum number of steps of one run'),
  ('max_memo_bytes', 16777216, 'largest total of the results that the steps of one run may store');

-- When code with ctx.since(name) was first seen, so that runs enqueued before keep their way.
create table queues.change (
  type text collate "C" not null,
  name text collate "C" not null,
  first_seen_at timestamptz not null,
  constraint one_first_time_per_change primary key (type, name)
);
comment on table queues.change is 'When the code of a type first asked ctx.since for a name. Append-only.';

create table queues.continuation (
  task_id uuid constraint one_next_run primary key,
  next_id uuid not null,
  first_id uuid not null
);
create unique index run_before on queues.continuation (next_id);
comment on table queues.continuation is
  'A fact: this run has ended by ctx.continue_as, and that one goes on. Append-only.';
comment on column queues.continuation.first_id is
  'The run with which it began: the one that a batch, a join or a handle knows.';
