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

-- The result of one health check, and what to do about it.
create type queues.health_line as (
  check_name text,
  level text,
  subject text,
  value double precision,
  message text,
  advice text
);
