-- Explains why a task is not running now.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.explain(task_id uuid)
returns text
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
    return format('There is no task %s: the id is wrong, retention has removed it, it belongs to another namespace, '
      'or the transaction that enqueues it is still open.', coalesce(task_id::text, 'null'));
  elsif _task.deleted_at is not null then
    return format('It was deleted at %s by %s%s. Restore it to let it continue.',
      _task.deleted_at, _task.deleted_by, coalesce(' because: ' || _task.delete_reason, ''));
  elsif _task.finished_at is not null then
    return queues.explain_end(_task.status, _task.finished_at, _task.attempt, _task.max_attempts, _task.reason,
      _task.last_error)
      || coalesce(' ' || queues.explain_events(_task.task_id, _now), '');
  end if;
  if _task.deadline is not null then
    _deadline := format(' It has to end by %s.', queues.end_of_life(_task.task_id, _task.created_at, _task.deadline));
  end if;
  if _task.claimed_at is not null then
    return queues.explain_hold(_task.status, _task.worker_id, _task.lease_until, _task.attempt,
      _task.max_attempts, _now)
      || coalesce(_deadline, '') || coalesce(' ' || queues.explain_schedule(_task.task_id, _task.metadata), '');
  end if;
  return queues.explain_wait(_task.task_id, _task.queue, _task.type, _task.run_at, _task.attempt, _task.max_attempts,
    _task.last_error, _now)
    || coalesce(_deadline, '') || coalesce(' ' || queues.explain_schedule(_task.task_id, _task.metadata), '');
end
$$;

comment on function queues.explain(uuid) is 'Explains why a task is not running now.';
