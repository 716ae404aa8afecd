-- A lane is one queue, type, priority and concurrency key in use. Claims look at one index range per lane, so that neither
-- other queues, nor other types, nor tasks scheduled at another priority, nor those of a key that has enough cost them anything.
-- There is no unique key on purpose: two transactions that use a new type at the same time each make a lane
-- instead of waiting for one another (or deadlocking); both lanes are read from then on.
create table queues.lane (
  lane_id integer generated always as identity constraint lane_pkey primary key,
  queue text collate "C" not null,
  type text collate "C" not null,
  priority integer not null,
  concurrency_key text collate "C"
);
create index lane_of_task on queues.lane (queue, type, priority, concurrency_key, lane_id);
comment on table queues.lane is 'One row per queue, type, priority and concurrency key in use: what a claim looks through.';

create table queues.paused_queue (
  queue text collate "C" constraint paused_queue_pkey primary key,
  paused_at timestamptz not null,
  paused_by text not null,
  reason text
);
comment on table queues.paused_queue is 'Queues from which nothing is claimed until they are resumed.';

-- What the workers' code declares, for those who enqueue without it: from SQL, over HTTP, on the command line.
create table queues.task_type (
  type text collate "C" constraint task_type_pkey primary key,
  queue text collate "C",
  priority integer not null,
  max_attempts integer not null,
  lease interval,
  registered_at timestamptz not null,
  registered_by text collate "C" not null
);
comment on table queues.task_type is 'Defaults of the types that workers have handlers for: used where a task says nothing itself.';
comment on column queues.task_type.registered_by is 'The login (session_user) of the worker that declared it last.';

create table queues.executor (
  executor text collate "C" constraint executor_pkey primary key,
  needs_process boolean not null,
  description text not null
);
comment on table queues.executor is
  'What can run a task. Those that act with the rights of the database need holdfast_process to enqueue.';
insert into queues.executor (executor, needs_process, description) values
  ('python', false, 'a registered Python handler, in the worker'),
  ('process', false, 'a registered Python handler, in a process of its own'),
  ('command', false, 'an external program from the worker''s configuration'),
  ('db_function', true, 'a database function, called through internal.run_function'),
  ('email', true, 'an e-mail, between its before, success and error handlers'),
  ('sms', true, 'a text message, between its before, success and error handlers');

create table queues.setting (
  name text collate "C" constraint setting_pkey primary key,
  value bigint not null,
  description text not null,
  -- So that small batches and payloads need no look into this table.
  constraint limits_not_too_low check (value >= case name
    when 'max_payload_bytes' then 4096 when 'max_result_bytes' then 4096 when 'max_batch' then 1000 else 1 end)
);
comment on table queues.setting is 'Limits that an installation may change.';
insert into queues.setting (name, value, description) values
  ('max_payload_bytes', 262144, 'largest payload, as text, that enqueue takes'),
  ('max_result_bytes', 1048576, 'largest result, as text, that finish keeps'),
  ('max_batch', 50000, 'most elements in one call of enqueue_many, heartbeat, finish or release'),
  ('worker_timeout_seconds', 60, 'how long a worker that does not say so may be silent before it counts as dead');
