-- Returns the number of the current generation of a run; null if there is no such task.
-- Internal. Locks: none.
create or replace function queues.current_generation(task_id uuid)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select coalesce(t.generation, 1) from queues.task t where t.task_id = current_generation.task_id $$;

comment on function queues.current_generation(uuid) is 'Returns the number of the current generation of a run.';
