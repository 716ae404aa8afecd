-- Recorded by the leader once a minute: the growth of the tables, and transaction ids, which give the age of a snapshot
-- without a time.
create table queues.measurement (
  measured_at timestamptz constraint measurement_pkey primary key,
  transaction_id xid8 not null,
  bytes bigint not null
);
comment on table queues.measurement is 'Size of all tables and current transaction id, every minute for a week.';

-- The result of one health check, and what to do about it.
create type queues.health_line as (
  check_name text,
  level text,
  subject text,
  value double precision,
  message text,
  advice text
);
