-- Returns the lane that a task with this queue, type, priority and concurrency key is enqueued to, creating it if
-- needed. Beyond 32 types of a queue and priority, the others share a lane. If bounded, respects the limit on lanes of
-- a namespace.
-- Internal.
create or replace function queues.lane_for(
  queue text, type text, priority integer, concurrency_key text, namespace text, bounded boolean default false)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lane_id bigint := queues.find_lane(queue, type, priority, concurrency_key);
  _types integer;
begin
  if _lane_id is null then
    select count(*) into _types from queues.lane l
    where l.queue = lane_for.queue and l.priority = lane_for.priority and l.leaving is null
      and coalesce(l.concurrency_key, '') = '' and (l.concurrency_key is null) = (lane_for.concurrency_key is null);
    insert into queues.lane (made_at, priority, queue, type, concurrency_key, namespace)
    values (queues.clock(), priority, queue, case when _types < 32 then type else '' end,
      case when concurrency_key is not null then '' end, namespace)
    returning lane_id into _lane_id;
    if bounded then
      perform queues.check_lanes(namespace, 1);
    end if;
  end if;
  return _lane_id;
end
$$;

comment on function queues.lane_for(text, text, integer, text, text, boolean) is
  'Returns the lane that a task is enqueued to, creating it if needed.';
