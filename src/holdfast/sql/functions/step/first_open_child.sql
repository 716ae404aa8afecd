-- Returns the first child of a step, from a place on, that has not ended, and its place. A child has also ended if it
-- was deleted, or if retention has removed it. A child that went on by ctx.continue_as ends with its last run.
-- Internal.
create or replace function queues.first_open_child(
  parent_id uuid, step text, from_number integer, out number integer, out task_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.number, case when o.status is null then c.child_id else queues.last_run(c.child_id) end
  from queues.child c
  left join lateral (select o.status, o.reason from queues.outcome o where o.task_id = c.child_id offset 0) o on true
  where c.parent_id = first_open_child.parent_id and c.step = first_open_child.step and c.number >= from_number
    and case when o.status is null then queues.is_open(c.child_id)
      when o.status = 'succeeded' and starts_with(o.reason, 'continued as ')
        then queues.is_open(queues.last_run(c.child_id))
      else false end
  order by c.number limit 1
$$;

comment on function queues.first_open_child(uuid, text, integer) is
  'Returns the first child of a step, from a place on, that has not ended, and its place.';
