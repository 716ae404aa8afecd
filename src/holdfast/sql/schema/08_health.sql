-- The sizes and transaction ids of the leader's samples tell the growth of the tables and the age of a snapshot without
-- a time. The counters are the server's own statistics, so that charts add no cost to tasks.
create table queues.sample (
  taken_at timestamptz constraint sample_pkey primary key,
  transaction_id xid8 not null,
  bytes bigint not null,
  enqueued_total bigint not null,
  finished_total bigint not null,
  errors_total bigint not null,
  due bigint,
  scheduled bigint,
  running bigint,
  delay_p50 double precision,
  delay_p99 double precision
);
comment on table queues.sample is
  'Samples for health and for the charts: every minute by the leader, every ten seconds by an HTTP server.';

-- What workers report about the attempts that they ran, for charts and rankings: per minute, quarter of an hour and
-- three hours, for each type of a queue, for each queue (type ''), and for everything (queue and type ''). Nothing is
-- counted when a task ends, so that charts add no cost to tasks.
create table queues.activity (
  at timestamptz not null,
  period integer not null constraint known_period check (period in (1, 15, 180)),
  queue text collate "C" not null,
  type text collate "C" not null,
  succeeded bigint not null default 0,
  failed bigint not null default 0,
  dead_letter bigint not null default 0,
  cancelled bigint not null default 0,
  retrying bigint not null default 0,
  run_seconds double precision not null default 0,
  run_counts bigint[] not null default '{}',
  delay_counts bigint[] not null default '{}',
  due bigint,
  running bigint,
  constraint activity_pkey primary key (period, queue, type, at)
) with (fillfactor = 70);
create index activity_in_time on queues.activity (period, at);
comment on table queues.activity is
  'How many attempts ended how, per minute, quarter of an hour and three hours, for each type, each queue, and all.';
comment on column queues.activity.period is 'In minutes.';
comment on column queues.activity.run_counts is 'Attempts by how long they ran: see activity_limits.';
comment on column queues.activity.delay_counts is 'Attempts by how long they waited from due to start.';
comment on column queues.activity.due is 'Waiting tasks that were due at the last sample of this time.';

-- The result of one health check, and what to do about it.
create type queues.health_line as (
  check_name text,
  level text,
  subject text,
  value double precision,
  message text,
  advice text,
  error text
);
