-- How much may run at once, and how fast, of a queue or of a type. No row, no limit, no cost.
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
comment on table queues.task_limit is 'How much may run at once, and how fast, of a queue or of a type.';
comment on column queues.task_limit.per_key is 'How much of one concurrency key may run at once.';
comment on column queues.task_limit.tokens is 'How many may be started at counted_at before the rate is used up.';

-- What runs under a limit. A slot counts as long as its lease lives: that of a worker that died is free when the lease
-- is, and no other path has to know of slots. Those whose lease is gone are removed by the next claim that looks.
-- The gate is (subject, name) for all tasks of a queue or type, and with a namespace and a key for those of one concurrency key.
create table queues.slot (
  subject text collate "C" not null,
  name text collate "C" not null,
  namespace text collate "C" not null,
  concurrency_key text collate "C" not null,
  task_id uuid not null,
  token bigint not null,
  constraint slot_pkey primary key (subject, name, namespace, concurrency_key, task_id, token)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
comment on table queues.slot is 'What runs under a limit; it counts as long as its lease lives.';
comment on column queues.slot.namespace is 'To whom the concurrency key belongs. Empty where all tasks of the queue or type are counted.';
comment on column queues.slot.concurrency_key is 'Empty where all tasks of the queue or type are counted.';

-- What claims lock while they count a limit, so that one at a time does. A queue or type has one of these rows by its hash: two that
-- share one only wait for each other. A fixed number of rows, because to make a row means to wait for others who make the same.
create table queues.limit_lock (
  number integer constraint limit_lock_pkey primary key
);
insert into queues.limit_lock (number) select n from pg_catalog.generate_series(0, 1023) n;
comment on table queues.limit_lock is 'Rows that claims lock while they count what runs under a limit.';
