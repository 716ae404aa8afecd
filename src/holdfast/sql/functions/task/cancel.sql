-- Cancels a task that has not ended and returns its status: cancelled, or how it had already ended. A running task is
-- cancelled at once; its worker learns of it at its next heartbeat and can no longer change it.
-- For holdfast_client (tasks of its namespace) and holdfast_operator. Locks: the ready row, else the lease, else the
-- deletion.
create or replace function queues.cancel(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform queues.check_task_owner(task_id);
  return queues.cancel_now(task_id, reason);
end
$$;

comment on function queues.cancel(uuid, text) is
  'Cancels a task that has not ended and returns its status: cancelled, or how it had already ended.';
