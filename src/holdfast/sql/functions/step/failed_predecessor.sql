-- Returns why a task that needs the success of those before it cannot run: the first of them, between two places, that
-- has ended otherwise, as the task that ended and in words. Null if all of them succeeded.
-- Internal: called by advance_joins.
create or replace function queues.failed_predecessor(
  dependant uuid, from_number integer, before_number integer, out task_id uuid, out reason text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.child_id, format('after: %s %s', c.child_id, coalesce('ended ' || o.status, 'was deleted'))
  from queues.child c
  left join lateral (select o.status from queues.outcome o where o.task_id = c.child_id offset 0) o on true
  where c.parent_id = failed_predecessor.dependant and c.generation = 1 and c.step = '' and c.number >= from_number
    and (before_number is null or c.number < before_number) and o.status is distinct from 'succeeded'
  order by c.number limit 1
$$;

comment on function queues.failed_predecessor(uuid, integer, integer) is
  'Returns why a task that needs the success of those before it cannot run, or null.';
