-- Enqueues a deterministic task, or returns an existing run of the same spec. With succeeded, a run that has succeeded;
-- with active, also one that is not finished. Never a run of another type, executor, payload or namespace.
-- For holdfast_client and holdfast_process. Locks: the row of the spec. Security invoker, like enqueue, so that the
-- rights of the actual caller apply.
create or replace function queues.enqueue_reusing(
  type text,
  payload jsonb default '{}',
  queue text default null,
  priority integer default null,
  run_at timestamptz default null,
  max_attempts integer default null,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null,
  concurrency_key text default null,
  reuse text default 'succeeded',
  deadline interval default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _task_id uuid := queues.find_reusable_run(type, payload, executor, reuse);
begin
  if _task_id is not null then
    return query select _task_id, false;
    return;
  end if;
  _task_id := queues.enqueue(type, payload, queue, priority, run_at, null, max_attempts, timeout, lease, executor,
    metadata, concurrency_key, deadline => deadline);
  perform queues.store_reusable_run(_task_id);
  return query select _task_id, true;
end
$$;

comment on function queues.enqueue_reusing(
  text, jsonb, text, integer, timestamptz, integer, interval, interval, text, jsonb, text, text, interval) is
  'Enqueues a deterministic task, or returns an existing run of the same spec.';
