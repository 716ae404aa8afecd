-- Returns how a task ended, and why, or null while it waits or runs. The end is succeeded, failed, dead_letter,
-- cancelled, deleted, or missing if the task no longer exists. For the supervisor that waits for the task.
-- For holdfast_process. Locks: nothing.
create or replace function queues.ending_of(task_id uuid, out status text, out reason text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select o.status, o.reason into status, reason from queues.outcome o where o.task_id = ending_of.task_id;
  if found or exists (select from queues.ready r where r.task_id = ending_of.task_id)
    or exists (select from queues.lease l where l.task_id = ending_of.task_id)
  then
    return;
  end if;
  select 'deleted', d.reason into status, reason from queues.deletion d where d.task_id = ending_of.task_id;
  if not found then
    status := 'missing';
  end if;
end
$$;

comment on function queues.ending_of(uuid) is 'Returns how a task ended, and why, or null while it waits or runs.';
