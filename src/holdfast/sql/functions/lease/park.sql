-- Removes tasks that were deleted while they ran from the ready rows, until they are restored. Runs after the statement
-- that made them ready, so that it sees a deletion committed at any time before.
-- Internal: called by settle_mixed, release and recover_leases. Locks: deletions. It waits for nobody who restores or
-- cancels such a task: they lock its lease first, and the caller has that.
create or replace function queues.park(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with deleted as materialized (
    -- Tasks that were restored meanwhile have no deletion here, and stay ready.
    select d.task_id from queues.deletion d where d.task_id = any (task_ids) order by d.task_id for update),
  moved as (
    delete from queues.ready r where r.task_id = any (array(select task_id from deleted))
    returning r.task_id, r.run_at, r.attempt)
  update queues.deletion d
  set parked_run_at = m.run_at, parked_attempt = m.attempt
  from moved m where d.task_id = m.task_id
$$;

comment on function queues.park(uuid[]) is
  'Removes tasks that were deleted while they ran from the ready rows, until they are restored.';
