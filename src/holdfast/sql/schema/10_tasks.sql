-- Tasks: the request, the row that says where a task stands (ready, lease, outcome, or a deletion that keeps its
-- place), what went wrong and what people did. Also what claims read: lanes, limits and pauses.
-- Explained in docs/design/state.md.

-- A lane is a list of waiting tasks, in the order in which they are claimed. Tasks of one queue, type and priority
-- share a lane; those with a concurrency key have one of their own, whatever their keys. Beyond 32 types in a queue
-- and priority, the other types share a lane. So a claim reads few lanes, however many keys and types there are.
-- A task whose key already runs as many tasks as it may waits in the lane of its key, which claims do not read, until
-- a task of that key ends: see set_aside and bring_back.
-- There is deliberately no unique key: two transactions that use a new type at the same time each insert a lane
-- instead of waiting for one another (or deadlocking); claims read both lanes from then on. tidy_lanes removes idle
-- lanes.
create table queues.lane (
  lane_id bigint generated always as identity constraint lane_pkey primary key,
  made_at timestamptz not null,
  leaving bigint,
  priority integer not null,
  queue text collate "C" not null,
  type text collate "C" not null,
  concurrency_key text collate "C",
  namespace text collate "C" not null
) with (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index lane_of_task on queues.lane (queue, type, priority, concurrency_key, lane_id);
create index lane_of_key on queues.lane (concurrency_key, namespace) where concurrency_key > '';
create index lanes_of_namespace on queues.lane (namespace) where coalesce(concurrency_key, '') = '';
-- The lanes that claims read.
create index lane_of_queue on queues.lane (queue, lane_id) where coalesce(concurrency_key, '') = '';
create index lane_of_type on queues.lane (type, lane_id) where coalesce(concurrency_key, '') = '';
comment on table queues.lane is
  'Lists of waiting tasks of one queue and priority: per type, with or without concurrency keys, and of single keys.';
comment on column queues.lane.leaving is
  'Null while tasks may be enqueued here; else the transaction id up to which open transactions may still use the '
  'lane. Below 0: not known yet; marked as idle by that transaction.';
comment on column queues.lane.type is 'Empty if types share the lane.';
comment on column queues.lane.concurrency_key is
  'Null for tasks without a key. Empty for tasks with any key. Otherwise for those that wait until a task of this key '
  'ends; claims do not read these lanes.';
comment on column queues.lane.namespace is
  'The owner of the concurrency key, if there is one; else the namespace of the first task.';

-- Namespaces that have reached the limit on lanes. While a namespace is here, every new lane triggers a count, instead
-- of one in 64. The namespace is no key: two transactions that notice it must not wait for each other.
create table queues.lane_hoarder (
  hoarder_id bigint generated always as identity constraint lane_hoarder_pkey primary key,
  namespace text collate "C" not null,
  noticed_at timestamptz not null
);
comment on table queues.lane_hoarder is 'Namespaces that have reached the limit on lanes.';

create table queues.paused_queue (
  queue text collate "C" constraint paused_queue_pkey primary key,
  paused_at timestamptz not null,
  paused_by text not null,
  reason text
);
comment on table queues.paused_queue is 'Queues from which nothing is claimed until they are resumed.';

-- Declarations of the workers' code, for callers that enqueue without it: from SQL, over HTTP, on the command line.
create table queues.task_type (
  type text collate "C" constraint task_type_pkey primary key,
  queue text collate "C",
  priority integer not null,
  max_attempts integer not null,
  timeout interval,
  deadline interval,
  lease interval,
  executor text collate "C" not null,
  schema jsonb,
  registered_at timestamptz not null,
  registered_by text collate "C" not null
);
comment on table queues.task_type is 'Declared defaults of task types, used for options that a task does not set.';
comment on column queues.task_type.executor is
  'The executor that the handler is declared with. The worker enforces it: a task cannot ask for less isolation.';
comment on column queues.task_type.schema is
  'JSON schemas of the arguments and the result, for people and for clients that check payloads before they enqueue.';
comment on column queues.task_type.registered_by is 'The login (session_user) of the worker that declared it last.';

-- What an enqueue without options would look up in three tables, so that it reads one row. Unlogged, because the next
-- enqueues write it again. There is deliberately no unique key: two transactions that use a type at the same time each
-- insert a route instead of waiting for one another. See functions/lanes.sql.
create unlogged table queues.route (
  version bigint not null,
  lane_id bigint not null,
  priority integer not null,
  max_attempts integer not null,
  lease interval,
  deadline interval,
  login text collate "C" not null,
  type text collate "C" not null,
  namespace text collate "C" not null,
  queue text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index route_of_task on queues.route (login, type);
comment on table queues.route is
  'For each login and type that were enqueued lately: the namespace, the defaults and the lane of such a task.';
comment on column queues.route.version is
  'Valid while it is that of queues.route_version, which grows when a namespace or a declared default changes.';
create sequence queues.route_version as bigint;
do $$ begin perform pg_catalog.nextval('queues.route_version'); end $$;

create table queues.executor (
  executor text collate "C" constraint executor_pkey primary key,
  needs_process boolean not null,
  description text not null
);
comment on table queues.executor is
  'The executors of tasks. Those that act with the rights of the database require holdfast_process to enqueue.';
insert into queues.executor (executor, needs_process, description) values
  ('python', false, 'a registered Python handler, in the worker'),
  ('process', false, 'a registered Python handler, in a child process'),
  ('command', false, 'an external program from the worker''s configuration'),
  ('ray', false, 'a registered Python handler, on a Ray cluster'),
  ('db_function', true, 'a database function, called through internal.run_function');

create table queues.setting (
  name text collate "C" constraint setting_pkey primary key,
  value bigint not null,
  description text not null,
  -- Small batches and payloads then need no lookup in this table.
  constraint limits_not_too_low check (value >= case name
    when 'max_payload_bytes' then 4096 when 'max_result_bytes' then 4096 when 'max_batch' then 1000 else 1 end)
);
comment on table queues.setting is 'Limits that an installation may change.';
insert into queues.setting (name, value, description) values
  ('max_payload_bytes', 262144, 'largest payload, as text, that enqueue accepts'),
  ('max_result_bytes', 1048576, 'largest result, as text, that finish stores'),
  ('max_batch', 50000, 'maximum number of elements in one call of enqueue_many, heartbeat, finish or release'),
  ('max_lanes', 2000,
    'maximum number of combinations of queue, type and priority in which tasks of one namespace wait'),
  ('worker_timeout_seconds', 60, 'default timeout of workers, after which a silent worker counts as dead');

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

-- The state of a task: exactly one of ready, lease, outcome, or a deletion that parks it.

create table queues.ready (
  task_id uuid constraint ready_pkey primary key,
  run_at timestamptz not null,
  lane_id bigint not null,
  attempt integer not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index ready_to_claim on queues.ready (lane_id, run_at, task_id);
comment on table queues.ready is
  'May be claimed from run_at on. Rows are inserted and deleted, never updated.';
comment on column queues.ready.attempt is 'Attempts used so far.';

-- Of deleted, limited and awaited, only true is stored, and of generation, only a later one than the first: null takes
-- no space.
create table queues.lease (
  task_id uuid constraint lease_pkey primary key,
  token bigint not null,
  claimed_at timestamptz not null,
  lease_until timestamptz not null,
  run_at timestamptz,
  started_at timestamptz,
  lane_id bigint not null,
  attempt integer not null,
  lease_ms integer not null,
  deleted boolean,
  limited boolean,
  awaited boolean,
  worker_id text collate "C" not null,
  concurrency_key text collate "C",
  progress jsonb,
  generation integer
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
-- No index on a column that heartbeats change, and pages that are half empty, so that all updates of a heartbeat are
-- HOT. The sweep reads the whole table, which has only as many rows as tasks run.
-- Both are empty where there are no limits and no concurrency keys.
create index lease_under_limit on queues.lease (lane_id) where limited;
create index lease_of_key on queues.lease (concurrency_key) where concurrency_key is not null;
comment on table queues.lease is
  'A worker holds the task with this token until lease_until. The only frequently used rows that are updated.';
comment on column queues.lease.run_at is
  'When it became due, so that a released task keeps its position; null if that is the run_at of the task.';
comment on column queues.lease.deleted is
  'Soft-deleted while it ran. Also stored here, because a finish that waited for this row sees its newest version.';
comment on column queues.lease.limited is 'Counts under a limit of its queue or type.';
comment on column queues.lease.awaited is 'Other tasks of its concurrency key wait until it ends.';
comment on column queues.lease.concurrency_key is 'The key with its namespace: see qualified_key.';
comment on column queues.lease.generation is
  'The same as that of the task, which does not change while the lease is held.';

-- What becomes of a task whose lease ends: see queues.end_leases.
create type queues.lease_end as (
  task_id uuid,
  n integer,
  status text,
  used integer,
  run_at timestamptz,
  started_at timestamptz,
  result jsonb,
  reason text,
  cause "char",
  cause_id uuid,
  act text,
  act_data jsonb,
  error_kind text,
  error_message text,
  error jsonb,
  recovered boolean,
  wakes boolean
);

create table queues.outcome (
  task_id uuid constraint one_outcome_per_task primary key,
  token bigint,
  claimed_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz not null,
  attempt integer not null,
  status text collate "C" not null
    constraint known_outcome check (status in ('succeeded', 'failed', 'dead_letter', 'cancelled')),
  worker_id text collate "C",
  reason text,
  result jsonb,
  cause "char" constraint known_cause check (cause in ('d', 'p', 's')),
  cause_id uuid
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.02);
create index outcome_to_look_into on queues.outcome (status, task_id) where status <> 'succeeded';
comment on table queues.outcome is 'How the task ended, with the result. At most one per task.';
comment on column queues.outcome.cause is
  'Why the engine cancelled it: d a task before it did not succeed, p its parent did not succeed, s the step of its '
  'parent that waited for it is over. Null if the engine did not.';
comment on column queues.outcome.cause_id is 'The task before it, or its parent.';

create table queues.deletion (
  task_id uuid constraint deletion_pkey primary key,
  deleted_at timestamptz not null,
  deleted_by text not null,
  reason text,
  parked_run_at timestamptz,
  parked_attempt integer,
  constraint parked_whole_or_not_at_all check ((parked_run_at is null) = (parked_attempt is null))
);
comment on table queues.deletion is
  'Soft-deleted tasks, by whom and why. The parked columns keep a waiting task''s position until it is restored.';

-- One number per call of claim. It only grows, so it can also serve as a fencing token outside this database.
create sequence queues.token as bigint;

-- Unlogged, so that it is empty after a crash and on a promoted standby. The last claims may then be lost, because they
-- did not wait for the disk, and the sequence would issue their tokens again.
create unlogged table queues.crash_detector (
  only_one boolean constraint crash_detector_pkey primary key default true constraint crash_detector_is_one_row check (
    only_one)
);
insert into queues.crash_detector default values;
comment on table queues.crash_detector is 'Has one row, unless the server has crashed since the last claim.';

-- Unlogged, because after a crash the next claims begin each lane anew. Its rows are only inserted and deleted: a row
-- that is updated would leave a version per claim while an old snapshot is held.
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

create table queues.error (
  error_id bigint generated always as identity constraint error_pkey primary key,
  task_id uuid not null,
  token bigint,
  claimed_at timestamptz,
  started_at timestamptz,
  occurred_at timestamptz not null,
  retry_at timestamptz,
  attempt integer not null,
  recovered boolean not null,
  kind text not null,
  message text not null,
  worker_id text,
  detail jsonb,
  step text collate "C",
  step_try integer,
  step_tries integer,
  generation integer not null default 1,
  error_group uuid
);
create index errors_of_task on queues.error (task_id, error_id);
create unique index one_error_per_try on queues.error (task_id, generation, step, step_try) where step is not null;
-- So that health finds a step that fails for long, however many other errors there are.
create index tries_to_look_into on queues.error (error_id)
  where step is not null and (step_try >= 2 or retry_at - occurred_at > interval '10 minutes');
create index errors_to_group on queues.error (occurred_at) include (error_group, error_id, retry_at)
  where error_group is not null;
comment on table queues.error is
  'Every failed attempt, and the newest 50 failed tries of each step that is repeated. Append-only.';
comment on column queues.error.step is
  'The step of which a try failed: it is repeated at retry_at, and the attempt goes on. Null if the attempt failed.';
comment on column queues.error.generation is 'The generation of the run that failed.';
comment on column queues.error.step_tries is 'How many tries the step has in all.';
comment on column queues.error.recovered is
  'Whether a sweep or recovery wrote it because the worker was silent, and not the worker itself.';
comment on column queues.error.retry_at is 'When the task is retried; null if this was the end.';
comment on column queues.error.error_group is
  'The same for all errors of a type that differ only in numbers, ids and quoted values: see queues.group_of_error. '
  'Null if an action on the task ended the run.';

create table queues.act (
  act_id bigint generated always as identity constraint act_pkey primary key,
  task_id uuid,
  queue text,
  act text not null constraint known_act check (act in (
    'cancelled', 'retried', 'deleted', 'restored', 'rescheduled', 'paused', 'resumed', 'released', 'snoozed',
      'suspended', 'replaced', 'continued')),
  occurred_at timestamptz not null,
  token bigint,
  attempt integer,
  worker_id text,
  actor text not null,
  reason text,
  data jsonb
);
create index acts_on_task on queues.act (task_id, act_id) where task_id is not null;
create index acts_on_queue on queues.act (queue, act_id) where queue is not null;
comment on table queues.act is 'Acts on a task or queue, such as cancel or pause, with actor and reason. Append-only.';

-- Limits on concurrency and rate of a queue or type. Without rows, there is no limit and no cost.
create table queues.task_limit (
  subject text collate "C" not null constraint limits_queue_or_type check (subject in ('queue', 'type')),
  name text collate "C" not null,
  max_running integer constraint at_least_one_running check (max_running >= 1),
  per_key integer constraint at_least_one_per_key check (per_key >= 1),
  rate integer constraint at_least_one_per_period check (rate >= 1),
  per interval constraint period_is_positive check (per > interval '0'),
  tokens double precision not null,
  counted_at timestamptz not null,
  set_at timestamptz not null,
  set_by text not null,
  reason text,
  constraint one_limit_per_subject primary key (subject, name),
  constraint limits_something check (num_nonnulls(max_running, per_key, rate) > 0),
  constraint rate_has_a_period check ((rate is null) = (per is null))
) with (fillfactor = 50);
comment on table queues.task_limit is 'Limits on concurrency and rate of a queue or type.';
comment on column queues.task_limit.per_key is 'How many tasks of one concurrency key may run at once.';
comment on column queues.task_limit.tokens is 'How many tasks the rate allowed to start at counted_at.';

-- Locks for counting the running tasks under a limit or of a concurrency key, so that one claim at a time does. A hash
-- selects the row; two limits or keys that share a row only wait for each other. A fixed number of rows, because
-- inserting one would mean waiting for other transactions that insert the same row.
create table queues.limit_lock (
  number integer constraint limit_lock_pkey primary key
);
insert into queues.limit_lock (number) select n from pg_catalog.generate_series(0, 16383) n;
comment on table queues.limit_lock is
  'Rows that claims lock while they count the running tasks under a limit or of a concurrency key.';

-- lz4 compresses documents several times faster than the default method. Not every server is built with it. Without it,
-- payloads are stored as they are: to compress one takes longer than to write it, and it is kept for a short time only.
do $install$
begin
  if (select 'lz4' = any (s.enumvals) from pg_catalog.pg_settings s where s.name = 'default_toast_compression') then
    alter table queues.task alter column payload set compression lz4;
    alter table queues.outcome alter column result set compression lz4;
    alter table queues.error alter column message set compression lz4, alter column detail set compression lz4;
  else
    alter table queues.task alter column payload set storage external;
  end if;
end
$install$;
