-- Business processes and their instances. The facts of a process are in its own schema; these rows record which task
-- runs its supervisor next, so that a process without one is found, and clients that wait for its end are notified.
create table queues.process (
  process text collate "C" constraint process_pkey primary key,
  kind text collate "C" not null constraint known_kind check (kind in ('attempts', 'decision', 'python')),
  schema_name text collate "C" not null,
  root_table text collate "C" not null,
  supervisor text collate "C" not null constraint one_process_per_supervisor unique,
  repair text collate "C" not null,
  cancel text collate "C" not null,
  history text collate "C" not null,
  files jsonb not null default '{}',
  registered_at timestamptz not null,
  registered_by text collate "C" not null,
  kickoff text collate "C"
);
comment on table queues.process is
  'The business processes of this database, with the functions that run, repair, end and read them.';
comment on column queues.process.supervisor is
  'The function that is the supervisor. If kind is python, the type of the tasks that are.';
comment on column queues.process.kickoff is
  'The function that starts an instance with one document as its input; null if there is none of that form.';
comment on column queues.process.files is 'The digest of each file that holdfast process apply last applied.';

-- Unlogged: no row outlives its transaction.
create unlogged table internal.call (
  transaction_id xid8 constraint call_pkey primary key,
  namespace text collate "C" not null,
  actor text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
comment on table internal.call is
  'The transaction that calls a function of a process: for which namespace, and who has it called.';

create table queues.process_instance (
  process text collate "C" not null,
  process_id bigint not null,
  wait_key uuid not null generated always as (
    md5(process || ' ' || process_id::text)::uuid) stored constraint one_instance_per_wait_key unique,
  created_at timestamptz not null,
  created_by text collate "C" not null,
  namespace text collate "C" not null,
  updated_at timestamptz not null,
  decision text collate "C",
  reason text,
  next_run_at timestamptz,
  task_id uuid,
  awaited_task_id uuid,
  repairs integer not null default 0,
  repaired_at timestamptz,
  trouble text collate "C" constraint known_trouble check (trouble in ('orphaned', 'failing')),
  troubled_at timestamptz,
  ended_at timestamptz,
  constraint process_instance_pkey primary key (process, process_id),
  constraint supervised_or_ended check ((task_id is null) = (ended_at is not null)),
  constraint ended_by_a_decision check (ended_at is null or decision is not null),
  constraint troubled_since check ((trouble is null) = (troubled_at is null))
);
create index process_to_supervise on queues.process_instance (process, process_id) where ended_at is null;
create index process_in_trouble on queues.process_instance (process, process_id) where trouble is not null;
create index process_that_awaits on queues.process_instance (awaited_task_id) where awaited_task_id is not null;
create index process_to_prune on queues.process_instance (ended_at) where ended_at is not null;
comment on table queues.process_instance is
  'The state of each started business process: its next supervisor task, or its end.';
comment on column queues.process_instance.wait_key is
  'Identifies the process in queues.waiter and in notifications, like the task_id of a task.';
comment on column queues.process_instance.awaited_task_id is 'The task whose end the supervisor waits for, if any.';
comment on column queues.process_instance.repairs is 'How often its supervisor was enqueued again since it last ran.';
