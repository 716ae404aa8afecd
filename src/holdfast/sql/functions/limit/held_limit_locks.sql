-- Returns the rows of queues.limit_lock that other open transactions hold, and for how long, if known.
-- Internal.
create or replace function queues.held_limit_locks(now timestamptz)
returns table (lock integer, pid integer, login text, seconds double precision)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select k.number, a.pid, a.usename::text, coalesce(extract(epoch from now - a.xact_start)::double precision,
    queues.snapshot_age(age(k.xmax)::bigint, now))
  from queues.limit_lock k
  join pg_locks l on l.locktype = 'transactionid' and l.transactionid = k.xmax and l.granted
  join pg_stat_activity a on a.pid = l.pid
  where k.xmax <> '0'::xid and a.pid <> pg_backend_pid() and exists (
    -- Usually none does, and the rows need not be read.
    select from pg_locks t
    where t.locktype = 'relation' and t.relation = 'queues.limit_lock'::regclass and t.pid <> pg_backend_pid())
$$;

comment on function queues.held_limit_locks(timestamptz) is
  'Returns the rows of queues.limit_lock that other open transactions hold, and for how long, if known.';
