-- The lowest transaction id of those who may have read queues.lane and have not ended; null if there is none. Behind tidy_lanes.
create or replace function queues.oldest_user_of_lanes()
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _ids bigint[];
  _next bigint;
begin
  -- Prepared transactions have no pid.
  _ids := array(
    select x.transactionid::text::bigint
    from pg_locks l join pg_locks x on x.virtualtransaction = l.virtualtransaction and x.locktype = 'transactionid' and x.granted
    where l.locktype = 'relation' and l.relation = 'queues.lane'::regclass and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database()));
  if _ids = '{}' then
    return null;
  end if;
  -- Read after them, so that each is below it; pg_locks has the lower 32 bits.
  _next := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  return (select min(_next - (((_next - id) % 4294967296 + 4294967296) % 4294967296)) from unnest(_ids) id);
end
$$;

comment on function queues.oldest_user_of_lanes() is
  'The lowest transaction id of those who may have read queues.lane and have not ended; null if there is none.';
