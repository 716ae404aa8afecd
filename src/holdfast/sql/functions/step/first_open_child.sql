-- Returns the first child of a step, from a place on, that has not ended, and its place. A child has also ended if it
-- was deleted, or if retention has removed it. Without a step: the first task before it.
-- Internal.
create or replace function queues.first_open_child(
  parent_id uuid, step text, from_number integer, out number integer, out task_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.number, c.child_id
  from queues.child c
  where c.parent_id = first_open_child.parent_id
    and c.generation = case when first_open_child.step = '' then 1
      else queues.current_generation(first_open_child.parent_id) end
    and c.step = first_open_child.step and c.number >= from_number
    -- Most have an outcome: a look there costs less than the call.
    and case when (select true from queues.outcome o where o.task_id = c.child_id limit 1) then false
      else queues.is_open(c.child_id) end
  order by c.number limit 1
$$;

comment on function queues.first_open_child(uuid, text, integer) is
  'Returns the first child of a step, from a place on, that has not ended, and its place.';
