-- The lane for a queue, type and priority, made if there is none.
create or replace function queues.lane_for(queue text, type text, priority integer)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lane_id integer;
begin
  select l.lane_id into _lane_id from queues.lane l
  where l.queue = lane_for.queue and l.type = lane_for.type and l.priority = lane_for.priority
  order by l.lane_id limit 1;
  if not found then
    insert into queues.lane (queue, type, priority) values (queue, type, priority) returning lane_id into _lane_id;
  end if;
  return _lane_id;
end
$$;

comment on function queues.lane_for(text, text, integer) is 'The lane for a queue, type and priority, made if there is none.';
