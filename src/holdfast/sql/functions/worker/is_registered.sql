-- Whether the worker is in the registry. One that was taken for dead and is not finds out by this, and registers again.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.is_registered(worker_id text)
returns boolean
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from queues.worker w where w.worker_id = is_registered.worker_id)
$$;

comment on function queues.is_registered(text) is 'Whether the worker is in the registry.';
