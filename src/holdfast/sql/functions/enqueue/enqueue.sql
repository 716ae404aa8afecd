-- Enqueues one task in the caller's transaction and answers its id: a new one, or that of the task that already holds
-- the key with the same spec. For holdfast_client and holdfast_process. Locks: the key.
create or replace function queues.enqueue(
  type text,
  payload jsonb default '{}',
  queue text default null,
  priority integer default 0,
  run_at timestamptz default null,
  idempotency_key text default null,
  max_attempts integer default 3,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _task jsonb;
  _task_id uuid;
begin
  if payload is null or priority is null or max_attempts is null then
    raise exception using errcode = 'QF400', message = format('%s must not be null',
      case when payload is null then 'payload' when priority is null then 'priority' else 'max_attempts' end);
  end if;
  _task := jsonb_build_array(jsonb_build_object('type', type, 'payload', payload, 'queue', queue, 'priority', priority,
    'run_at', run_at, 'idempotency_key', idempotency_key, 'max_attempts', max_attempts, 'timeout', extract(epoch from timeout),
    'lease', extract(epoch from lease), 'executor', executor, 'metadata', metadata));
  if has_function_privilege('queues.enqueue_for_process(jsonb)', 'execute') then
    select e.task_id into _task_id from queues.enqueue_for_process(_task) e;
  else
    select e.task_id into _task_id from queues.enqueue_for_client(_task) e;
  end if;
  return _task_id;
end
$$;

comment on function queues.enqueue(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb) is
  'Enqueues one task in the caller''s transaction and answers its id.';
