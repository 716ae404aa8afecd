-- How long ago the transaction of this age in transactions began, as far as the leader's measurements tell: at least so many seconds.
create or replace function queues.snapshot_age(transactions bigint, now timestamptz)
returns double precision
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(extract(epoch from now - min(m.measured_at)), 0)::double precision
  from queues.measurement m
  where age(m.transaction_id::xid) < transactions
$$;

comment on function queues.snapshot_age(bigint, timestamptz) is
  'How long ago a transaction began, by how many came after it and the leader''s measurements.';
