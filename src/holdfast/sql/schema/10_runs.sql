-- The reusable run of each spec, for deterministic tasks. Other tasks have no row here, and no index on their hash.
create table queues.reusable (
  spec_hash bytea not null,
  namespace text collate "C" not null,
  task_id uuid,
  constraint one_run_to_reuse primary key (spec_hash, namespace)
);
create index reusable_of_task on queues.reusable (task_id);
comment on table queues.reusable is 'The reusable run of each spec, per namespace, for deterministic tasks.';
comment on column queues.reusable.task_id is
  'Null while the first run is being enqueued. Retention removes a row that stays null.';

-- Separate from the worker's row, which is removed with the worker.
create table queues.worker_environment (
  worker_id text collate "C" constraint worker_environment_pkey primary key,
  recorded_at timestamptz not null,
  environment jsonb not null
);
comment on table queues.worker_environment is
  'The environment of each start of a worker: versions, commit, host. Append-only.';
