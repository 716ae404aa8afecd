-- The lane for a queue, type, priority and concurrency key, if there is one. Two queries, because no index serves "is not distinct from".
-- The lane of a key is held until the transaction ends, beside any number of others, so that it is not tidied away before its task is there.
create or replace function queues.find_lane(queue text, type text, priority integer, concurrency_key text)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if find_lane.concurrency_key is null then
    return (
      select l.lane_id from queues.lane l
      where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority and l.concurrency_key is null
      order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1);
  end if;
  return (
    select l.lane_id from queues.lane l
    where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority
      and l.concurrency_key = find_lane.concurrency_key
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1 for key share);
end
$$;

comment on function queues.find_lane(text, text, integer, text) is
  'The lane for a queue, type, priority and concurrency key, if there is one.';
