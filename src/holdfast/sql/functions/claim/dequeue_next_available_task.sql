-- Claims one task, for simple workers.
-- For holdfast_worker. Locks: one ready row.
create or replace function queues.dequeue_next_available_task(
  worker_id text default null,
  queues text[] default null,
  type_prefixes text[] default null)
returns table (
  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,
  lease_until timestamptz, timeout interval, metadata jsonb)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.task_id, c.token, c.type, c.executor, c.payload, c.attempt, c.max_attempts, c.lease_until,
    c.timeout, c.metadata
  from queues.claim(coalesce(worker_id, 'backend-' || pg_backend_pid()), 1, queues, type_prefixes) c
$$;

comment on function queues.dequeue_next_available_task(text, text[], text[]) is 'Claims one task, for simple workers.';
