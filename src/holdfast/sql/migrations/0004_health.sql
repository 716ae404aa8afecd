-- Taken by the leader once a minute: how the tables grow, and, by the transactions counted so far, how old a snapshot is that shows no time.
create table queues.measurement (
  measured_at timestamptz constraint measurement_pkey primary key,
  transaction_id xid8 not null,
  bytes bigint not null
);
comment on table queues.measurement is 'Size of all tables and id of the transaction, minute by minute for a week.';

-- One thing that was looked at, and what to do about it.
create type queues.health_line as (
  check_name text,
  level text,
  subject text,
  value double precision,
  message text,
  advice text
);
