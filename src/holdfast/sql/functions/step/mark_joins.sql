-- Marks runs whose join points to one of these tasks, which end with this transaction: a sweep looks at them after the
-- commit, if the worker that ended the tasks does not (wake_joined).
-- Internal.
create or replace function queues.mark_joins(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.recheck (task_id)
  select distinct w.task_id from queues.wait w where w.on_task = any (task_ids);
$$;

comment on function queues.mark_joins(uuid[]) is
  'Marks runs whose join points to one of these tasks, for the next sweep.';
