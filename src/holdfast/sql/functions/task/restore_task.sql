-- Undoes a soft delete and returns the status of the task. Refused if another task has taken its key.
-- For holdfast_operator. Locks: the lease, else the outcome, by lock_task; then the deletion, then the key.
create or replace function queues.restore_task(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _deletion queues.deletion;
  _task queues.task;
  _place text;
  _holder uuid;
begin
  perform queues.check_task_owner(task_id);
  reason := left(reason, 2000);
  select t.* into _task from queues.task t where t.task_id = restore_task.task_id;
  -- Locked before the deletion is read, deleted or not: a concurrent delete holds it until it commits.
  select l.place into _place from queues.lock_task(task_id, array['lease', 'outcome', 'deletion']) l;
  if _place is null or _place = 'ready' then
    return queues.status_now(task_id);
  end if;
  delete from queues.deletion d where d.task_id = restore_task.task_id returning d.* into _deletion;
  if not found then
    return queues.status_now(task_id);
  end if;
  update queues.lease l set deleted = null where l.task_id = restore_task.task_id and l.deleted;

  if _task.idempotency_key is not null then
    insert into queues.task_key (type, idempotency_key, namespace, task_id)
    values (_task.type, _task.idempotency_key, _task.namespace, task_id) on conflict do nothing;
    if not found then
      select k.task_id into _holder from queues.task_key k
      where k.type = _task.type and k.idempotency_key = _task.idempotency_key and k.namespace = _task.namespace;
      raise exception using errcode = 'QF409',
        message = format('task %s cannot be restored: its idempotency_key %s now belongs to task %s',
          task_id, to_json(_task.idempotency_key), coalesce(_holder::text, 'another')),
        hint = 'Delete that task first, or leave this one deleted.';
    end if;
  end if;
  if _deletion.parked_run_at is not null then
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    values (task_id, _deletion.parked_run_at,
      queues.lane_for(_task.queue, _task.type, _task.priority, _task.concurrency_key, _task.namespace),
      _deletion.parked_attempt);
    -- What it waits for may have come while nothing could wake it.
    insert into queues.chore (kind, added_at, task_id) select distinct 'w'::"char", _now, w.task_id from queues.wait w
    where w.task_id = restore_task.task_id;
  end if;
  insert into queues.act (task_id, act, occurred_at, actor, reason)
  values (task_id, 'restored', _now, queues.actor(), reason);
  perform queues.wake_for(task_id);
  return queues.status_now(task_id);
end
$$;

comment on function queues.restore_task(uuid, text) is 'Undoes a soft delete and returns the status of the task.';
