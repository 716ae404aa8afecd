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

-- Running tasks under a limit. A slot counts as long as its lease exists: the slot of a dead worker is free when the
-- lease is removed, and no other function needs to know about slots. The next claim under the limit removes slots
-- without a lease. The gate is (subject, name) for all tasks of a queue or type, and includes a namespace and a key for
-- those of one concurrency key.
create table queues.slot (
  subject text collate "C" not null,
  name text collate "C" not null,
  namespace text collate "C" not null,
  concurrency_key text collate "C" not null,
  task_id uuid not null,
  token bigint not null,
  constraint slot_pkey primary key (subject, name, namespace, concurrency_key, task_id, token)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
comment on table queues.slot is 'Running tasks under a limit. A slot counts as long as its lease exists.';
comment on column queues.slot.namespace is
  'The owner of the concurrency key. Empty if all tasks of the queue or type are counted.';
comment on column queues.slot.concurrency_key is 'Empty where all tasks of the queue or type are counted.';

-- Locks for counting a limit, so that one claim at a time does. The hash of a queue or type selects its row; two that
-- share a row only wait for each other. A fixed number of rows, because inserting one would mean waiting for other
-- transactions that insert the same row.
create table queues.limit_lock (
  number integer constraint limit_lock_pkey primary key
);
insert into queues.limit_lock (number) select n from pg_catalog.generate_series(0, 1023) n;
comment on table queues.limit_lock is 'Rows that claims lock while they count the running tasks under a limit.';
