-- Returns the minimum age in seconds of a transaction, from the number of later ones and the leader's measurements.
-- Internal.
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
  'Returns the minimum age in seconds of a transaction, from the number of later ones and the leader''s measurements.';
