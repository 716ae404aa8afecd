-- A namespace owns tasks, idempotency keys, inbox events and schedules. A login without a row here has its own
-- namespace.
create table queues.namespace_login (
  login text collate "C" constraint one_namespace_per_login primary key,
  namespace text collate "C" not null,
  added_at timestamptz not null,
  added_by text not null
);
create index logins_of_namespace on queues.namespace_login (namespace, login);
comment on table queues.namespace_login is 'Logins that are assigned to a namespace. Every other login has its own.';

-- The request. Never updated, but for one thing: a run that goes on by ctx.continue_as gets the payload and the number
-- of its next generation. The state of a task is determined by which other table has a row for it.
create table queues.task (
  task_id uuid constraint task_pkey primary key,
  created_at timestamptz not null,
  run_at timestamptz not null,
  priority smallint not null,
  max_attempts smallint not null constraint at_least_one_attempt check (max_attempts >= 1),
  type text collate "C" not null,
  queue text collate "C" not null,
  executor text collate "C" not null,
  enqueued_by text collate "C" not null,
  namespace text collate "C" not null,
  idempotency_key text collate "C",
  timeout interval,
  lease interval,
  payload jsonb not null,
  metadata jsonb,
  concurrency_key text collate "C",
  deadline interval,
  generation integer
  -- By default, vacuum would first come when a fifth of the table is dead, which takes days if it is large.
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.02);
comment on table queues.task is
  'The request of a task: written once, but that ctx.continue_as changes its payload; removed only by retention.';
comment on column queues.task.enqueued_by is 'The login (session_user) that enqueued the task.';
comment on column queues.task.deadline is
  'How long after its enqueue, or its last retry by hand, it has to have ended.';
comment on column queues.task.namespace is 'The namespace that owns the task.';
comment on column queues.task.payload is 'Of the current generation: see queues.generation.';
comment on column queues.task.generation is
  'How often it has begun by ctx.continue_as, and once more. Null, which takes no space, for the first generation.';

-- Separate from the task, so that deleting a task frees its key, and no retry can conflict with it.
create table queues.task_key (
  type text collate "C" not null,
  idempotency_key text collate "C" not null,
  namespace text collate "C" not null,
  task_id uuid not null,
  -- The namespace comes last, so that a search over all namespaces is one index range.
  constraint one_task_per_type_key_and_namespace primary key (type, idempotency_key, namespace)
);
comment on table queues.task_key is 'The task of each idempotency key, per namespace and type.';

-- The type and options of a task that is being enqueued. In a batch, n is its position.
create type queues.new_task as (
  n integer,
  type text,
  queue text,
  executor text,
  priority integer,
  run_at timestamptz,
  max_attempts integer,
  timeout interval,
  lease interval,
  idempotency_key text,
  metadata jsonb,
  concurrency_key text,
  deadline interval
);
