-- Removes a worker from the registry, ends its leadership, and returns whether it was registered. Its leases are not
-- changed: it releases them itself, or they end.
-- For holdfast_worker. Locks: the leadership, then the worker's row.
create or replace function queues.retire_worker(worker_id text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.resign(worker_id);
  delete from queues.worker w where w.worker_id = retire_worker.worker_id;
  return found;
end
$$;

comment on function queues.retire_worker(text) is
  'Removes a worker from the registry, ends its leadership, and returns whether it was registered.';
