-- Leaves a chore for each run whose join points to one of these tasks, which end with this transaction: it is looked at
-- after the commit, if the worker that ended the tasks does not (wake_joined).
-- Internal.
create or replace function queues.mark_joins(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.chore (kind, added_at, task_id)
  select distinct 'w'::"char", queues.clock(), w.task_id from queues.wait w where w.on_task = any (task_ids);
$$;

comment on function queues.mark_joins(uuid[]) is
  'Leaves a chore for each run whose join points to one of these tasks.';
