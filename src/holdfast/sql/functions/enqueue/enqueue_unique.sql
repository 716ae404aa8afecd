-- Enqueues a task unless one with the same type and key is there already, and returns it, or that one. With unique
-- waiting, one that has not begun counts; with unfinished, one that has not ended. With debounce, one that has not
-- begun is replaced: the new one runs after this time, and at the latest debounce_max after the first one was enqueued.
-- Keys belong to a namespace. A task that was found waiting is not claimed before the caller's transaction ends, so it
-- sees its changes.
-- For holdfast_client and holdfast_process. Locks: the row of the key, then the ready row; then as enqueue_many.
-- Security invoker, so that the rights of the actual caller apply.
create or replace function queues.enqueue_unique(
  type text,
  payload jsonb default '{}',
  key text default null,
  "unique" text default null,
  debounce interval default null,
  debounce_max interval default null,
  queue text default null,
  priority integer default null,
  run_at timestamptz default null,
  max_attempts integer default null,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null,
  concurrency_key text default null,
  shard_key text default null,
  deadline interval default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if num_nonnulls("unique", debounce) = 0 then
    raise exception using errcode = 'QF400',
      message = 'give either unique, which is waiting or unfinished, or debounce';
  end if;
  return query
  select e.task_id, e.created from queues.enqueue_many(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
    'type', type, 'queue', queue, 'priority', priority, 'run_at', run_at, 'idempotency_key', key,
    'max_attempts', max_attempts, 'timeout', extract(epoch from timeout)::text,
    'lease', extract(epoch from lease)::text,
    'deadline', extract(epoch from deadline)::text, 'executor', executor, 'concurrency_key', concurrency_key,
    'unique', "unique", 'debounce', extract(epoch from debounce)::text,
    'debounce_max', extract(epoch from debounce_max)::text))
    || jsonb_build_object('payload', payload)
    || case when metadata is null then '{}' else jsonb_build_object('metadata', metadata) end)) e;
end
$$;

comment on function queues.enqueue_unique(
  text, jsonb, text, text, interval, interval, text, integer, timestamptz, integer, interval, interval, text, jsonb,
  text, text, interval) is
  'Enqueues a task unless one with the same type and key is there already, and returns it, or that one.';
