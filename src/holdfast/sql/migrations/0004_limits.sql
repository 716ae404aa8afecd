alter table queues.lane add column concurrency_key text collate "C";
drop index queues.lane_of_task;
create index lane_of_task on queues.lane (queue, type, priority, concurrency_key, lane_id);
comment on table queues.lane is 'One row per queue, type, priority and concurrency key in use: what a claim looks through.';
alter table queues.task add column concurrency_key text collate "C";
alter type queues.new_task add attribute concurrency_key text;

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
create table queues.slot (
  gate text collate "C" not null,
  task_id uuid not null,
  token bigint not null,
  constraint slot_pkey primary key (gate, task_id, token)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
comment on table queues.slot is 'What runs under a limit; it counts as long as its lease lives.';
comment on column queues.slot.gate is 'What is limited: queue:NAME, type:NAME, or key:queue:NAME:KEY and key:type:NAME:KEY.';
