-- Returns the ids of open transactions that may have read queues.lane to add a task.
-- Internal: called by tidy_lanes.
create or replace function queues.users_of_lanes()
returns bigint[]
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  -- pg_locks has only the lower 32 bits of an id: use the id nearest to the server's current one.
  select coalesce(array_agg(n.next + (held.id - n.next + 2147483648 & 4294967295) - 2147483648), '{}')
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next) n
  cross join (
    select x.transactionid::text::bigint as id
    from pg_locks l
    join pg_locks x on x.virtualtransaction = l.virtualtransaction and x.locktype = 'transactionid' and x.granted
    -- Prepared transactions have no pid.
    where l.locktype = 'relation' and l.relation = 'queues.lane'::regclass and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())) held
$$;

comment on function queues.users_of_lanes() is
  'Returns the ids of open transactions that may have read queues.lane to add a task.';
