-- Returns how many leases of a worker a sweep has recovered since a time. Reads the newest 10,000 errors, because an
-- index would cost every error.
-- Internal: called by recover_workers. Locks: none.
create or replace function queues.count_swept(
  worker_id text, since timestamptz, out recovered integer, out dead integer)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select count(e.retry_at)::integer, (count(*) - count(e.retry_at))::integer
  from (
    select e.worker_id, e.kind, e.occurred_at, e.retry_at from queues.error e order by e.error_id desc limit 10000) e
  where e.worker_id = count_swept.worker_id and e.kind = 'lease_expired' and e.occurred_at >= since
$$;

comment on function queues.count_swept(text, timestamptz) is
  'Returns how many leases of a worker a sweep has recovered since a time.';
