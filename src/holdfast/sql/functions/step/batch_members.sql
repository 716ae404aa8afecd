-- Returns the tasks that a task comes after, in order: those of its batch, with those that were added since. None
-- if retention has removed it.
-- For holdfast_client (tasks of its namespace) and holdfast_operator. Locks: none.
create or replace function queues.batch_members(task_id uuid)
returns setof uuid
language sql stable security definer rows 100
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select c.child_id from queues.child c
  where c.parent_id = batch_members.task_id and c.generation = 1 and c.step = '' and (
    select true from queues.task t
    where t.task_id = batch_members.task_id
      and (t.namespace = queues.namespace() or queues.has_role('operator')))
  order by c.number;
$$;

comment on function queues.batch_members(uuid) is
  'Returns the tasks that a task comes after, in order: those of its batch, with those that were added since.';
