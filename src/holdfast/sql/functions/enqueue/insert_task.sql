-- Inserts one task and returns its id. Does the same as insert_tasks for a batch, with smaller statements, because
-- applications call it once per request.
-- Internal: called by enqueue_one_for_client and enqueue_one_for_process. Locks: the key.
create or replace function queues.insert_task(
  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer,
  timeout interval, lease interval, executor text, metadata jsonb, concurrency_key text, for_process boolean,
  namespace text default null)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _payload_text constant text := queues.text_of_plain(payload);
  _task_id constant uuid := queues.new_task_id();
  _namespace text;
  _declared record;
  -- The transaction id must exist before a lane is read: see tidy_lanes.
  _transaction_id constant xid8 := pg_current_xact_id();
  _holder uuid;
  _lane_id bigint;
  _idle boolean;
begin
  if payload is null or payload = 'null' then
    raise exception using errcode = 'QF400', message = 'payload must not be null';
  end if;
  executor := case when executor is null and payload ? 'task_type' then queues.executor_for(null, payload)
    else coalesce(executor, 'python') end;
  if timeout is not null or lease is not null or run_at is not null or metadata is not null or concurrency_key is not null
    or queues.looks_right(type, queue, executor, priority::text, max_attempts::text, idempotency_key, '{}', _payload_text,
      max_payload_bytes => 4096) is not true
  then
    perform queues.check_task('{}', type, queue, executor, priority::text, to_json(run_at) #>> '{}', max_attempts::text,
      extract(epoch from timeout)::text, extract(epoch from lease)::text, idempotency_key, payload, metadata, concurrency_key, for_process, '', _now);
  end if;
  -- Computes the namespace like queues.namespace(), without a call, in one statement with the declaration, because each
  -- statement has a cost to start.
  select n.namespace, d.queue, d.priority, d.max_attempts, d.lease into _declared
  from (select) one
  left join queues.namespace_login n on n.login = session_user::text
  left join queues.task_type d on d.type = insert_task.type;
  _namespace := coalesce(namespace, _declared.namespace, queues.namespace_of_login(session_user::text));
  queue := coalesce(queue, _declared.queue, split_part(split_part(type, '.', 1), ':', 1));
  priority := coalesce(priority, _declared.priority, 0);
  max_attempts := coalesce(max_attempts, _declared.max_attempts, 3);
  lease := coalesce(lease, _declared.lease);
  run_at := coalesce(run_at, _now);

  if idempotency_key is not null then
    _holder := (queues.hold_keys(array[row(1, _task_id, type, queue, executor, priority, run_at, max_attempts, timeout, lease,
      idempotency_key, payload, null, null)::queues.new_task], _namespace))[1];
    if _holder <> _task_id then
      return _holder;
    end if;
  end if;

  if concurrency_key is null and current_setting('transaction_isolation') = 'read committed' then
    select l.lane_id, exists (select from queues.worker w where w.idle) into _lane_id, _idle
    from queues.lane l where l.queue = insert_task.queue and l.type = insert_task.type and l.priority = insert_task.priority
      and l.concurrency_key is null and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  end if;
  if _lane_id is null then
    _lane_id := queues.lane_for(queue, type, priority, concurrency_key, _namespace, bounded => true);
    _idle := true;
  end if;
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by, namespace,
    idempotency_key, timeout, lease, payload, metadata, concurrency_key)
  values (_task_id, _now, run_at, priority, max_attempts, type, queue, executor, session_user, _namespace,
    idempotency_key, timeout, lease, payload, metadata, concurrency_key);
  insert into queues.ready (task_id, run_at, lane_id, attempt) values (_task_id, run_at, _lane_id, 0);
  if _idle and run_at <= _now and not queues.is_kept(queue, _now) then
    perform queues.wake_for(_task_id);
  end if;
  return _task_id;
end
$$;

comment on function queues.insert_task(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb, text, boolean, text) is
  'Inserts one task and returns its id.';
