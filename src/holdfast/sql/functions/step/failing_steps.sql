-- Returns the last failed try of each step that has not come to an end, of at most 1,000 steps of the current
-- generation of a run.
-- Internal. Locks: none.
create or replace function queues.failing_steps(task_id uuid)
returns setof queues.error
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select e.*
  from (
    select distinct on (e.step) e.* from queues.error e
    where e.task_id = $1 and e.generation = queues.current_generation($1) and e.step is not null
    order by e.step, e.step_try desc limit 1000) e
  where not exists (select from queues.step s
      where s.task_id = e.task_id and s.generation = e.generation and s.name = e.step)
    and not exists (select from queues.outcome o where o.task_id = e.task_id)
$$;

comment on function queues.failing_steps(uuid) is
  'Returns the last failed try of each step that has not come to an end.';
