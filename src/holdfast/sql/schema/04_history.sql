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
  generation integer not null default 1
);
create index errors_of_task on queues.error (task_id, error_id);
create unique index one_error_per_try on queues.error (task_id, generation, step, step_try) where step is not null;
-- So that health finds a step that fails for long, however many other errors there are.
create index tries_to_look_into on queues.error (error_id)
  where step is not null and (step_try >= 2 or retry_at - occurred_at > interval '10 minutes');
comment on table queues.error is
  'Every failed attempt, and the newest 50 failed tries of each step that is repeated. Append-only.';
comment on column queues.error.step is
  'The step of which a try failed: it is repeated at retry_at, and the attempt goes on. Null if the attempt failed.';
comment on column queues.error.generation is 'The generation of the run that failed.';
comment on column queues.error.step_tries is 'How many tries the step has in all.';
comment on column queues.error.recovered is
  'Whether a sweep or recovery wrote it because the worker was silent, and not the worker itself.';
comment on column queues.error.retry_at is 'When the task is retried; null if this was the end.';

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
