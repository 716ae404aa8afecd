-- Returns those of the tasks that are not soft-deleted. The ids are in order, so that one lookup usually suffices.
-- Internal: called by find_old_tasks and prune.
create or replace function queues.without_deleted(task_ids uuid[])
returns uuid[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (
    select from queues.deletion d where d.task_id between task_ids[1] and task_ids[cardinality(task_ids)]) then
    return array(
      select t.task_id from unnest(task_ids) t(task_id)
      where (select true from queues.deletion d where d.task_id = t.task_id limit 1) is null);
  end if;
  return task_ids;
end
$$;

comment on function queues.without_deleted(uuid[]) is 'Returns those of the tasks that are not soft-deleted.';
