-- Which run stands for a spec, for tasks that said that they are deterministic. Others have no row here, and no index on their hash.
create table queues.reusable (
  spec_hash bytea not null,
  namespace text collate "C" not null,
  task_id uuid,
  constraint one_run_to_reuse primary key (spec_hash, namespace)
);
create index reusable_of_task on queues.reusable (task_id);
comment on table queues.reusable is 'The run that stands for a spec, per namespace: of tasks that said that they are deterministic.';
comment on column queues.reusable.task_id is 'Null while the first of them is being enqueued. A row that stays so is removed by retention.';

-- Apart from the worker's row, which goes when the worker does.
create table queues.worker_environment (
  worker_id text collate "C" constraint worker_environment_pkey primary key,
  recorded_at timestamptz not null,
  environment jsonb not null
);
comment on table queues.worker_environment is 'What each start of a worker ran with: versions, commit, host. Append-only.';
