-- Enqueues one task in the caller's transaction and returns its id. If a task with the same key and spec exists,
-- returns its id. Options that are not given come from the worker's declaration of the type (queues.register_types).
-- For holdfast_client and holdfast_process. Locks: the key.
create or replace function queues.enqueue(
  type text,
  payload jsonb default '{}',
  queue text default null,
  priority integer default null,
  run_at timestamptz default null,
  idempotency_key text default null,
  max_attempts integer default null,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null,
  concurrency_key text default null)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if has_function_privilege('queues.enqueue_for_process(jsonb)'::regprocedure, 'execute') then
    return queues.enqueue_one_for_process(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease,
      executor, metadata, concurrency_key);
  else
    return queues.enqueue_one_for_client(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease,
      executor, metadata, concurrency_key);
  end if;
end
$$;

comment on function queues.enqueue(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb, text) is
  'Enqueues one task in the caller''s transaction and returns its id.';
