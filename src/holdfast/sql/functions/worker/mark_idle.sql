-- Records whether a worker waits for a wake-up, and returns whether it is registered.
-- For holdfast_worker. Locks: the worker's row.
create or replace function queues.mark_idle(worker_id text, idle boolean)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  update queues.worker w set idle = coalesce(mark_idle.idle, false) where w.worker_id = mark_idle.worker_id;
  return found;
end
$$;

comment on function queues.mark_idle(text, boolean) is
  'Records whether a worker waits for a wake-up, and returns whether it is registered.';
