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
