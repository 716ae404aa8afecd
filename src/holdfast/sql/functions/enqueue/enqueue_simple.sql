-- Inserts one task like insert_tasks, in less than half the time, and returns its id. Returns null, without inserting
-- anything, if the task is not simple (is_simple_task, are_simple_options) or its key is taken. Then the caller
-- enqueues a batch of one.
-- For holdfast_client; called by enqueue. Locks: the key.
create or replace function queues.enqueue_simple(
  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text,
  max_attempts integer, timeout interval, lease interval, executor text, metadata jsonb, concurrency_key text)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
  _now constant timestamptz := queues.clock();
  -- Without an id, the transaction is not in the call of a function of a process.
  _in_call constant xid8 := pg_current_xact_id_if_assigned();
  -- The transaction id must exist before a lane is read: see tidy_lanes.
  _transaction_id constant xid8 := pg_current_xact_id();
  _read_committed constant boolean := current_setting('transaction_isolation') = 'read committed';
  _payload_text constant text := case when pg_column_size(payload) <= 4096 then payload::text end;
  _durable text;
  _task_id uuid;
  _namespace text;
  _deadline interval;
  _lane_id bigint;
  _idle boolean;
begin
  -- The minimum of the setting. Under stricter isolation, only reserve_keys notices that a key was reassigned.
  if queues.is_simple_task(type, payload, _payload_text, 4096) is not true then
    return null;
  elsif num_nonnulls(queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor, metadata,
    concurrency_key) > 0
  then
    if queues.are_simple_options(queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor,
        metadata, concurrency_key, _now) is not true
      or idempotency_key is not null and not _read_committed
    then
      return null;
    end if;
  end if;
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable := queues.commit_to_disk();
  _task_id := queues.new_task_id();

  -- One statement for all lookups, because each statement has a cost to start.
  select coalesce(c.namespace, n.namespace, queues.namespace_of_login(session_user::text)), d.queue, d.priority,
    d.max_attempts, d.lease, d.deadline
  into _namespace, queue, priority, max_attempts, lease, _deadline
  from (select) one
  left join internal.call c on c.transaction_id = _in_call
  left join queues.namespace_login n on n.login = session_user::text
  cross join lateral queues.with_defaults(type, queue, priority, max_attempts, lease, null) d;
  run_at := coalesce(run_at, _now);

  if idempotency_key is not null then
    insert into queues.task_key (type, idempotency_key, namespace, task_id)
    values (type, idempotency_key, _namespace, _task_id) on conflict do nothing;
    if not found then
      return null;
    end if;
  end if;

  if concurrency_key is null and _read_committed then
    select l.lane_id, exists (select from queues.worker w where w.idle) into _lane_id, _idle
    from queues.lane l
    where l.queue = enqueue_simple.queue and l.type = enqueue_simple.type and l.priority = enqueue_simple.priority
      and l.concurrency_key is null and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  end if;
  if _lane_id is null then
    _lane_id := queues.lane_for(queue, type, priority, concurrency_key, _namespace, bounded => true);
    _idle := true;
  end if;

  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
    namespace, idempotency_key, timeout, lease, payload, metadata, concurrency_key, deadline)
  values (_task_id, _now, run_at, priority, max_attempts, type, queue, 'python', session_user,
    _namespace, idempotency_key, timeout, lease, payload, metadata, concurrency_key, _deadline);
  insert into queues.ready (task_id, run_at, lane_id, attempt) values (_task_id, run_at, _lane_id, 0);
  -- An idle worker looks every five seconds.
  if _idle and run_at <= _now + interval '6 seconds' then
    perform queues.wake(queue, type, _now);
  end if;
  return _task_id;
end
$$;

comment on function queues.enqueue_simple(
  text, jsonb, text, integer, timestamptz, text, integer, interval, interval, text, jsonb, text) is
  'Inserts one task like insert_tasks, in less than half the time, and returns its id, or null if it is not simple.';
