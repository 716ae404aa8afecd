-- Inserts one task per payload, all or nothing, and returns them in order. The only element of the batch has the type
-- and options of all. The payloads are JSON texts: each is parsed once, on its way into the table.
-- Internal: called by enqueue_for_client, enqueue_for_process and start_children. Locks: no existing rows.
create or replace function queues.insert_payloads(tasks jsonb, payloads text[], for_process boolean,
  enqueued_by text default session_user, namespace text default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('tasks', tasks);
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _namespace constant text := coalesce(insert_payloads.namespace, queues.namespace());
  _max_bytes constant bigint := (select s.value from queues.setting s where s.name = 'max_payload_bytes');
  _size constant integer := cardinality(payloads);
  _element constant jsonb := tasks -> 0;
  _executor constant text := _element ->> 'executor';
  -- One id is drawn per batch, because random bytes are expensive. The last 24 bits count up from a random number, so
  -- that the last digits, by which people name tasks, differ between batches.
  _prefix constant text := left(queues.new_task_id()::text, 30);
  _first constant integer := 16777216 + (random() * 8388607)::integer;
  _task queues.new_task;
  _lane_id bigint;
begin
  if jsonb_array_length(tasks) <> 1 or _element ?| array['payload', 'idempotency_key'] then
    raise exception using errcode = 'QF400',
      message = 'with payloads, tasks must have one element, without payload and idempotency_key';
  end if;
  perform queues.check_batch_size('payloads', _size);
  if _size = 0 then
    return;
  end if;

  -- With the first payload, so that of several errors the same one is raised as for a single task.
  _task := (select r.requests[1] from queues.read_tasks(
    jsonb_build_array(_element || jsonb_build_object('payload', payloads[1]::jsonb)), _size, for_process, _now,
    _max_bytes) r);
  _lane_id := queues.lane_for(_task.queue, _task.type, _task.priority,
    case when _task.concurrency_key is not null then '' end, _namespace, bounded => true);

  return query
  with told as (
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
      namespace, timeout, lease, payload, metadata, concurrency_key, deadline)
    select (_prefix || right(to_hex(_first + p.n), 6))::uuid, _now, _task.run_at, _task.priority, _task.max_attempts,
      _task.type, _task.queue,
      case when _executor is null and p.payload ? 'task_type' then queues.executor_for(null, p.payload)
        else coalesce(_executor, 'python') end,
      insert_payloads.enqueued_by, _namespace, _task.timeout, _task.lease, p.payload, _task.metadata,
      _task.concurrency_key, _task.deadline
    from (
      -- "offset 0" keeps the parsing here: once per payload. Set-returning functions in a select list run row by row,
      -- without a copy of all payloads.
      select p.written, p.n, p.written::jsonb as payload
      from (select unnest(payloads) as written, generate_series(1, _size) as n) p offset 0) p
    where queues.is_simple_payload(p.written, p.payload, _max_bytes)
      or queues.check_task(_element || jsonb_build_object('payload', p.payload), _task.type, _task.queue, _executor,
        _task.priority::text, null, _task.max_attempts::text, null, null, null, p.payload, null, null, for_process,
        case when _size > 1 then format('tasks[%s].', p.n - 1) else '' end, _now)
    returning task_id),
  waiting as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select t.task_id, _task.run_at, _lane_id, 0 from told t)
  select t.task_id, true from told t;

  if _task.run_at <= _now + interval '6 seconds' and exists (select from queues.worker w where w.idle) then
    perform queues.wake(_task.queue, _task.type, _now);
  end if;
end
$$;

comment on function queues.insert_payloads(jsonb, text[], boolean, text, text) is
  'Inserts one task per payload, all or nothing, and returns them in order.';
