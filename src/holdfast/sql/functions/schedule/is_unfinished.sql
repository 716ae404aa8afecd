-- Returns whether a task may still run: it has neither ended nor been deleted or removed.
-- Internal.
create or replace function queues.is_unfinished(task_id uuid)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from queues.task t where t.task_id = is_unfinished.task_id)
    and not exists (select from queues.outcome o where o.task_id = is_unfinished.task_id)
    and not exists (select from queues.deletion d where d.task_id = is_unfinished.task_id)
$$;

comment on function queues.is_unfinished(uuid) is
  'Returns whether a task may still run: it has neither ended nor been deleted or removed.';
