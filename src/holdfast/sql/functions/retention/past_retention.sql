-- Returns those of the tasks that the policy for their type no longer keeps.
-- Internal: called by find_old_tasks if there are policies for some types.
create or replace function queues.past_retention(status text, task_ids uuid[], now timestamptz)
returns uuid[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select t.task_id
    from unnest(past_retention.task_ids) old(task_id)
    cross join lateral (select t.task_id, t.type from queues.task t where t.task_id = old.task_id offset 0) t
    cross join lateral (
      select case past_retention.status
        when 'deleted' then (select d.deleted_at from queues.deletion d where d.task_id = t.task_id)
        else (select o.finished_at from queues.outcome o where o.task_id = t.task_id) end as at) ended
    where ended.at < past_retention.now - (
      select r.keep from queues.retention r
      where r.status = past_retention.status and starts_with(t.type, r.type_prefix)
      order by length(r.type_prefix) desc limit 1))
$$;

comment on function queues.past_retention(text, uuid[], timestamptz) is
  'Returns those of the tasks that the policy for their type no longer keeps.';
