-- Enqueues one task for holdfast_client: only executors that act with the rights of the worker. As in
-- enqueue_for_client, the right to execute it is the authority.
create or replace function queues.enqueue_one_for_client(
  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,
  timeout interval, lease interval, executor text, metadata jsonb, concurrency_key text)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.insert_task(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor,
    metadata, concurrency_key, for_process => false);
end
$$;

comment on function queues.enqueue_one_for_client(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb, text) is
  'Enqueues one task for holdfast_client: only executors that act with the rights of the worker.';
