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

-- Locks for counting the running tasks under a limit or of a concurrency key, so that one claim at a time does. A hash
-- selects the row; two limits or keys that share a row only wait for each other. A fixed number of rows, because
-- inserting one would mean waiting for other transactions that insert the same row.
create table queues.limit_lock (
  number integer constraint limit_lock_pkey primary key
);
insert into queues.limit_lock (number) select n from pg_catalog.generate_series(0, 16383) n;
comment on table queues.limit_lock is
  'Rows that claims lock while they count the running tasks under a limit or of a concurrency key.';
