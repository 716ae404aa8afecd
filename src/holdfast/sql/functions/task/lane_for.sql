-- Returns the lane for a queue, type, priority and concurrency key of a namespace, creating it if needed. If bounded,
-- respects the limit on lanes of a namespace.
-- Internal.
create or replace function queues.lane_for(
  queue text, type text, priority integer, concurrency_key text, namespace text, bounded boolean default false)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lane_id bigint := queues.find_lane(queue, type, priority, concurrency_key, namespace);
begin
  if _lane_id is null then
    insert into queues.lane (made_at, priority, queue, type, concurrency_key, namespace)
    values (queues.clock(), priority, queue, type, concurrency_key, namespace) returning lane_id into _lane_id;
    if bounded then
      perform queues.check_lanes(namespace, 1, concurrency_key is not null);
    end if;
  end if;
  return _lane_id;
end
$$;

comment on function queues.lane_for(text, text, integer, text, text, boolean) is
  'Returns the lane for a queue, type, priority and concurrency key of a namespace, creating it if needed.';
