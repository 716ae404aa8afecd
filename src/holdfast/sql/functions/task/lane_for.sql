-- The lane for a queue, type, priority and concurrency key, made if there is none.
create or replace function queues.lane_for(queue text, type text, priority integer, concurrency_key text)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lane_id integer := queues.find_lane(queue, type, priority, concurrency_key);
begin
  if _lane_id is null then
    insert into queues.lane (queue, type, priority, concurrency_key)
    values (queue, type, priority, concurrency_key) returning lane_id into _lane_id;
  end if;
  return _lane_id;
end
$$;

comment on function queues.lane_for(text, text, integer, text) is
  'The lane for a queue, type, priority and concurrency key, made if there is none.';
