-- Explains why a task is not running now. What an error or a handler says is in a column of its own, because it may
-- quote values. Commands that would end the wait are in another one.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.explain(task_id uuid)
returns table (why text, error text, advice text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _task record;
  _deadline text;
begin
  select s.*, d.deleted_by into _task
  from queues.task_status s left join queues.deletion d on d.task_id = s.task_id
  where s.task_id = explain.task_id;
  if not found then
    return query select format('There is no task %s: the id is wrong, retention has removed it, it belongs to another '
      'namespace, or the transaction that enqueues it is still open.', coalesce(task_id::text, 'null')), null::text,
      null::text;
    return;
  elsif _task.deleted_at is not null then
    return query select format('It was deleted at %s by %s%s. Restore it to let it continue.',
      date_trunc('second', _task.deleted_at), _task.deleted_by, coalesce(' because: ' || _task.delete_reason, '')),
      null::text, null::text;
    return;
  elsif _task.finished_at is not null then
    return query
    select concat_ws(' ', queues.explain_end(_task.status, date_trunc('second', _task.finished_at), _task.attempt,
        _task.max_attempts, case when _task.cancelled_by is not null then _task.reason end), e.why),
      nullif(concat_ws('; ', case when _task.status <> 'succeeded' and _task.cancelled_by is null
        then coalesce(_task.last_error, _task.reason) end, e.error), ''), null::text
    from queues.explain_events(_task.task_id, _now) e;
    return;
  end if;
  if _task.deadline is not null then
    _deadline := format('It has to end by %s.',
      date_trunc('second', queues.end_of_life(_task.task_id, _task.created_at, _task.deadline)));
  end if;
  if _task.claimed_at is not null then
    return query
    select concat_ws(' ', queues.explain_hold(_task.status, _task.worker_id, _task.lease_until, _task.attempt,
      _task.max_attempts, _now), s.why, _deadline, queues.explain_schedule(_task.task_id, _task.metadata)), s.error,
      null::text
    from queues.explain_steps(_task.task_id) s;
    return;
  end if;
  return query
  select concat_ws(' ', s.why, w.why, _deadline, queues.explain_schedule(_task.task_id, _task.metadata)),
    coalesce(s.error, w.error), case when _task.run_at > _now then queues.explain_signals(_task.task_id) end
  from queues.explain_steps(_task.task_id) s, queues.explain_wait(_task.task_id, _task.queue, _task.type,
    _task.run_at, _task.attempt, _task.max_attempts, _task.last_error, _now) w;
end
$$;

comment on function queues.explain(uuid) is
  'Explains why a task is not running now; errors, and commands that end its wait, are in columns of their own.';
