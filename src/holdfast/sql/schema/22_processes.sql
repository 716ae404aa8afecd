-- Business processes: which there are, and where each one that was kicked off stands. What happened in one of them is in the facts of its own
-- schema; these rows say which task runs its supervisor next, so that a process without one is found, and who waits for its end is told.
create table queues.process (
  process text collate "C" constraint process_pkey primary key,
  kind text collate "C" not null constraint known_kind check (kind in ('attempts', 'decision')),
  schema_name text collate "C" not null,
  root_table text collate "C" not null,
  supervisor text collate "C" not null constraint one_process_per_supervisor unique,
  repair text collate "C" not null,
  cancel text collate "C" not null,
  history text collate "C" not null,
  files jsonb not null default '{}',
  registered_at timestamptz not null,
  registered_by text collate "C" not null
);
comment on table queues.process is 'The business processes of this database, with the functions by which they are run, repaired, ended and read.';
comment on column queues.process.files is 'The digest of each file that holdfast process apply has applied last.';

create table queues.process_instance (
  process text collate "C" not null,
  process_id bigint not null,
  wait_key uuid not null generated always as (md5(process || ' ' || process_id::text)::uuid) stored constraint one_instance_per_wait_key unique,
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
comment on table queues.process_instance is 'Where each business process stands that was kicked off: its next supervisor task, or its end.';
comment on column queues.process_instance.wait_key is 'Stands for the process in queues.waiter and in notifications, as a task_id does for a task.';
comment on column queues.process_instance.awaited_task_id is 'The task whose end the supervisor waits for, if it said so.';
comment on column queues.process_instance.repairs is 'How often its supervisor was enqueued again since it last ran.';
