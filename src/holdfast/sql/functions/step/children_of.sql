-- Returns the awaited children of each step of the current generation of a run, one row per step, as read_steps gives
-- them to a worker. None if
-- the session may not read the run.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.children_of(task_id uuid)
returns table (step text, count integer, results jsonb, others jsonb)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  select c.step, c.count, c.results, c.others
  from (select t.task_id from queues.task_status t where t.task_id = children_of.task_id offset 0) t
  cross join lateral queues.read_children(t.task_id) c
$$;

comment on function queues.children_of(uuid) is
  'Returns the awaited children of each step of a run, one row per step, as read_steps gives them to a worker.';
