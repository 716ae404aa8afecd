-- Returns the lane for a queue, type, priority and concurrency key of a namespace, or null. Two queries, because no
-- index supports "is not distinct from". Under read committed nothing is locked, because shared locks are expensive:
-- tidy_lanes knows from transaction ids which transactions may have read a lane, so the id must be assigned first. An
-- old snapshot may show a lane that was removed: there the row is locked, which then fails.
-- Internal.
create or replace function queues.find_lane(queue text, type text, priority integer, concurrency_key text, namespace text)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _transaction_id constant xid8 := pg_current_xact_id();
  _lane_id bigint;
begin
  if find_lane.concurrency_key is null then
    select l.lane_id into _lane_id from queues.lane l
    where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority and l.concurrency_key is null
      and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  else
    select l.lane_id into _lane_id from queues.lane l
    where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority
      and l.concurrency_key = find_lane.concurrency_key and l.namespace = find_lane.namespace and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  end if;
  if _lane_id is not null and current_setting('transaction_isolation') <> 'read committed' then
    perform from queues.lane l where l.lane_id = _lane_id for key share;
  end if;
  return _lane_id;
end
$$;

comment on function queues.find_lane(text, text, integer, text, text) is
  'Returns the lane for a queue, type, priority and concurrency key of a namespace, or null.';
