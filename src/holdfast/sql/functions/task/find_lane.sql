-- Returns the lane that a task with this queue, type and priority is enqueued to, or null: its own, else the one that
-- types share. The lane depends on whether there is a concurrency key, not on which. Under read committed nothing is
-- locked, because shared locks are expensive: tidy_lanes knows from transaction ids which transactions may have read a
-- lane, so the id must be assigned first. An old snapshot may show a lane that was removed: there the row is locked,
-- which then fails.
-- Internal.
create or replace function queues.find_lane(
  queue text, type text, priority integer, concurrency_key text, namespace text default null)
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
    foreach type in array array[type, ''] loop
      select l.lane_id into _lane_id from queues.lane l
      where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority
        and l.concurrency_key is null and l.leaving is null
      order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
      exit when found;
    end loop;
  else
    foreach type in array array[type, ''] loop
      select l.lane_id into _lane_id from queues.lane l
      where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority
        and l.concurrency_key = '' and l.leaving is null
      order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
      exit when found;
    end loop;
  end if;
  if _lane_id is not null and current_setting('transaction_isolation') <> 'read committed' then
    perform from queues.lane l where l.lane_id = _lane_id for key share;
  end if;
  return _lane_id;
end
$$;

comment on function queues.find_lane(text, text, integer, text, text) is
  'Returns the lane that a task with this queue, type and priority is enqueued to, or null.';
