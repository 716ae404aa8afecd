-- Returns the lane of one concurrency key, in which tasks wait until another one of the key ends, creating it if
-- needed. With an empty key, or none, that of the type, for tasks with keys or without.
-- Internal.
create or replace function queues.own_lane(
  queue text, type text, priority integer, concurrency_key text, namespace text)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- The transaction id must exist before a lane is read: see tidy_lanes.
  _transaction_id constant xid8 := pg_current_xact_id();
  _lane_id bigint;
begin
  if concurrency_key is null then
    select l.lane_id into _lane_id from queues.lane l
    where l.queue = own_lane.queue and l.type = own_lane.type and l.priority = own_lane.priority
      and l.concurrency_key is null and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  else
    select l.lane_id into _lane_id from queues.lane l
    where l.queue = own_lane.queue and l.type = own_lane.type and l.priority = own_lane.priority
      and l.concurrency_key = own_lane.concurrency_key
      and (own_lane.concurrency_key = '' or l.namespace = own_lane.namespace) and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  end if;
  if _lane_id is null then
    insert into queues.lane (made_at, priority, queue, type, concurrency_key, namespace)
    values (queues.clock(), priority, queue, type, concurrency_key, namespace) returning lane_id into _lane_id;
  end if;
  return _lane_id;
end
$$;

comment on function queues.own_lane(text, text, integer, text, text) is
  'Returns the lane of one concurrency key, or of a type, creating it if needed.';
