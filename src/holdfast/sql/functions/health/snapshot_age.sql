-- Returns the minimum age in seconds of a transaction, from the number of later ones and the samples.
-- Internal.
create or replace function queues.snapshot_age(transactions bigint, now timestamptz)
returns double precision
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(extract(epoch from now - min(s.taken_at)), 0)::double precision
  from queues.sample s
  where age(s.transaction_id::xid) < transactions
$$;

comment on function queues.snapshot_age(bigint, timestamptz) is
  'Returns the minimum age in seconds of a transaction, from the number of later ones and the samples.';
