-- Returns events in the order in which they became visible, from a position on; without one, the newest. "final" means
-- that no earlier event will become visible: a reader continues from the last final event, and remembers which later
-- ones it has seen, because an open transaction may have an earlier number.
-- For holdfast_reader and holdfast_client. Locks: none.
create or replace function queues.tail_events(
  after_transaction bigint default null, after_number bigint default null, max_events integer default 100)
returns table (
  event_id uuid, event_type text, occurred_at timestamptz, aggregate_id text, subject text, task_id uuid, data jsonb,
  delivered bigint, dead bigint, deliveries integer, transaction_id bigint, event_number bigint, final boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _open constant xid8 := (select (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + o.shift)::text::xid8
    from queues.event_order o);
  _all constant boolean := queues.may_read_all();
  _namespace constant text := queues.namespace();
begin
  if max_events is null or max_events not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_events must be between 1 and 10000';
  end if;
  -- Not from the view queues.event_status, which has no order before it is read to the end.
  return query
  with chosen as materialized (
    (select e.* from queues.outbox_event e
    where after_transaction is null
      and (_all or e.namespace = _namespace)
    order by e.transaction_id desc, e.event_number desc limit case when after_transaction is null then max_events end)
    union all
    (select e.* from queues.outbox_event e
    where (e.transaction_id, e.event_number) > (after_transaction::text::xid8, coalesce(after_number, 0))
      and (_all or e.namespace = _namespace)
    order by e.transaction_id, e.event_number limit max_events))
  select e.event_id, e.event_type, e.occurred_at, e.aggregate_id, coalesce(e.subject, e.aggregate_id), e.task_id,
    e.data, (select count(*) from queues.delivered d where d.event_id = e.event_id),
    (select count(*) from queues.dead_delivery d where d.event_id = e.event_id),
    e.deliveries, e.transaction_id::text::bigint, e.event_number, e.transaction_id < _open
  from chosen e order by e.transaction_id, e.event_number;
end
$$;

comment on function queues.tail_events(bigint, bigint, integer) is
  'Returns events in the order in which they became visible, from a position on; without one, the newest.';
