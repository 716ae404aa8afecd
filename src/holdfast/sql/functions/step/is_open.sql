-- Returns whether a task exists, has not ended and is not deleted.
-- Internal.
create or replace function queues.is_open(task_id uuid)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select (select true from queues.outcome o where o.task_id = is_open.task_id limit 1) is null
    and (select true from queues.deletion d where d.task_id = is_open.task_id limit 1) is null
    and (select true from queues.task t where t.task_id = is_open.task_id limit 1) is true
$$;

comment on function queues.is_open(uuid) is 'Returns whether a task exists, has not ended and is not deleted.';
