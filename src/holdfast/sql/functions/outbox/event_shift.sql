-- Returns what is added to the id of a transaction so that events stay in order when the database is restored into a
-- new cluster, or moved to one by logical replication: it counts transactions from the beginning. Events of the future
-- tell that; what is added then is raised, so that new events come after all others.
-- Internal: called by record_events, test_subscription and take_sample. Locks: the row of queues.event_order, once in
-- each new cluster.
create or replace function queues.event_shift()
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _at record;
  _shift bigint;
begin
  -- One statement, because every other one would see later transactions.
  select o.shift, pg_snapshot_xmin(s.now)::text::bigint as oldest, pg_snapshot_xmax(s.now)::text::bigint as next,
    greatest(o.newest, (
      select e.transaction_id::text::bigint from queues.outbox_event e
      order by e.transaction_id desc, e.event_number desc limit 1)) - o.shift as newest
  into _at from queues.event_order o, (select pg_current_snapshot() as now offset 0) s;
  -- Its own events may have an id that is not in its snapshot yet.
  if _at.newest < _at.next or _at.newest <= pg_current_xact_id()::text::bigint then
    return _at.shift;
  end if;
  update queues.event_order o set shift = _at.shift + _at.newest + 1 - _at.oldest where o.shift = _at.shift;
  select o.shift into _shift from queues.event_order o;
  return _shift;
end
$$;

comment on function queues.event_shift() is
  'Returns what is added to the id of a transaction so that events stay in order in a new cluster.';
