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
  ('db_function', true, 'a database function, called through internal.run_function'),
  ('email', true, 'an e-mail, between its before, success and error handlers'),
  ('sms', true, 'a text message, between its before, success and error handlers');

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
