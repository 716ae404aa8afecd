-- The lane for a queue, type, priority and concurrency key of a namespace, if there is one. Two queries, because no index serves "is not distinct from".
-- Under read committed nothing is locked, because a lock that many share is dear: tidy_lanes knows by its transaction id who may have
-- read a lane, so the id is had before. A snapshot of long ago may show a lane that is gone: there its row is locked, or it fails.
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
  'The lane for a queue, type, priority and concurrency key of a namespace, if there is one.';
