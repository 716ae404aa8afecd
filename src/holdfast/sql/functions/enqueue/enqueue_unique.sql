-- Enqueues a task unless one with the same type and key is there already, and returns it, or that one. With unique
-- waiting, one that has not begun counts; with unfinished, one that has not ended. With debounce, one that has not
-- begun is replaced: the new one runs after this time, and at the latest debounce_max after the first one was enqueued.
-- Keys belong to a namespace. A task that was found waiting is not claimed before the caller's transaction ends, so it
-- sees its changes.
-- For holdfast_client and holdfast_process. Locks: the row of the key, then the ready row. Security invoker, like
-- enqueue, so that the rights of the actual caller apply.
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
  concurrency_key text default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _found record;
  _task_id uuid;
begin
  select f.task_id, f.run_at into _found from queues.find_unique(type, key, "unique", debounce, debounce_max) f;
  if _found.task_id is not null then
    return query select _found.task_id, false;
    return;
  end if;
  _task_id := queues.enqueue(type, payload, queue, priority, coalesce(_found.run_at, run_at), null, max_attempts,
    timeout, lease, executor, metadata, concurrency_key);
  perform queues.store_unique(_task_id, key);
  return query select _task_id, true;
end
$$;

comment on function queues.enqueue_unique(
  text, jsonb, text, text, interval, interval, text, integer, timestamptz, integer, interval, interval, text, jsonb,
  text) is
  'Enqueues a task unless one with the same type and key is there already, and returns it, or that one.';
