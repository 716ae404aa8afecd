-- Enqueues one task in the caller's transaction and returns its id. If a task with the same key and spec exists,
-- returns its id. Options that are not given come from the worker's declaration of the type (queues.register_types).
-- With shards, a front sends tasks with the same shard_key to the same shard; the engine itself has no use for it.
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
  concurrency_key text default null,
  shard_key text default null,
  deadline interval default null)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _task_id uuid;
begin
  if deadline is null then
    _task_id := queues.enqueue_simple(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout,
      lease, executor, metadata, concurrency_key);
  end if;
  if _task_id is null then
    _task_id := (select e.task_id from queues.enqueue_many(jsonb_build_array(jsonb_build_object(
      'type', type, 'payload', payload, 'queue', queue, 'priority', priority, 'run_at', run_at,
      'idempotency_key', idempotency_key, 'max_attempts', max_attempts, 'timeout', extract(epoch from timeout)::text,
      'lease', extract(epoch from lease)::text, 'executor', executor, 'metadata', metadata,
      'concurrency_key', concurrency_key, 'deadline', extract(epoch from deadline)::text))) e);
  end if;
  return _task_id;
end
$$;

comment on function queues.enqueue(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb, text, text, interval) is
  'Enqueues one task in the caller''s transaction and returns its id.';
