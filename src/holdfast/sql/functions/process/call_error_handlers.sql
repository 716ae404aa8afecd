-- Enqueues calls of the error handlers of tasks that ended without a report of their worker. The supervisor that waits
-- for such a task must learn of it. Each call is a separate task that is retried until it succeeds. Only for e-mail and
-- text messages, whose callers had the authority to name a function. Without a kind, uses that of the task's last
-- error, with its message. Also nudges supervisors that recorded which task they wait for.
-- Internal: called by sweep, finish and cancel. Locks: ready rows of supervisors, without waiting.
create or replace function queues.call_error_handlers(
  task_ids uuid[], kind text, message text, permanent boolean, outcome_unknown boolean, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _ended record;
  _task_id uuid;
  _payload jsonb;
begin
  for _ended in
    select t.task_id, t.type, t.queue, t.priority, t.payload, t.enqueued_by, t.namespace, t.metadata, e.kind, e.message
    from queues.task t
    left join lateral (
      select e.kind, e.message from queues.error e where e.task_id = t.task_id and call_error_handlers.kind is null
      order by e.error_id desc limit 1) e on true
    where t.task_id = any (task_ids) and t.executor in ('email', 'sms')
      and jsonb_typeof(t.payload -> 'error_handler') = 'string'
  loop
    _task_id := queues.new_task_id();
    _payload := jsonb_build_object('task_type', 'db_function', 'db_function', _ended.payload -> 'error_handler',
      'original_payload', _ended.payload, 'error', jsonb_build_object('kind', coalesce(kind, _ended.kind),
        'message', coalesce(message, _ended.message), 'permanent', permanent,
        'outcome_unknown', outcome_unknown, 'task_id', _ended.task_id));
    -- Not with enqueue, because a payload that contains another one may exceed its limits, and a sweep must not fail.
    insert into queues.task (
      task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by, namespace,
      payload, metadata)
    values (_task_id, now, now, _ended.priority, 25, _ended.type, _ended.queue, 'db_function', _ended.enqueued_by,
      _ended.namespace, _payload, _ended.metadata);
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    values (_task_id, now, queues.lane_for(_ended.queue, _ended.type, _ended.priority, null, _ended.namespace), 0);
    perform queues.wake_for(_task_id);
  end loop;
  perform queues.nudge_waiting(array(
    select i.task_id from queues.process_instance i where i.awaited_task_id = any (task_ids) and i.ended_at is null),
      now);
end
$$;

comment on function queues.call_error_handlers(uuid[], text, text, boolean, boolean, timestamptz) is
  'Enqueues calls of the error handlers of tasks that ended without a report of their worker.';
