-- Returns whether the worker is registered. A worker that was wrongly considered dead learns it by this call, and
-- registers again.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.is_registered(worker_id text)
returns boolean
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from queues.worker w where w.worker_id = is_registered.worker_id)
$$;

comment on function queues.is_registered(text) is 'Returns whether the worker is registered.';
