-- Gives a failed, dead or cancelled task a new set of attempts from now on, and returns its status: pending, or
-- suspended if a task that it comes after has not ended: then it waits again, under its condition. Tasks that were
-- cancelled because they come after it wait for it again, and so do children that ended with it.
-- For holdfast_operator. Locks: the outcome, by lock_task; then those of the tasks after it and of its children.
create or replace function queues.retry(task_id uuid, reason text default null)
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
  _former queues.outcome;
  _waits boolean;
begin
  perform queues.check_task_owner(task_id);
  reason := left(reason, 2000);
  perform queues.lock_task(task_id, array['outcome']);
  delete from queues.outcome o
  where o.task_id = retry.task_id and o.status in ('failed', 'dead_letter', 'cancelled')
  returning o.* into _former;
  if not found then
    raise exception using errcode = 'QF412',
      message = format('task %s cannot be retried: it is %s', task_id, queues.status_now(task_id)),
      hint = 'Only tasks that are failed, dead_letter or cancelled can be retried.';
  end if;
  -- Read after the outcome was locked: delete_task holds it while it writes the deletion.
  if exists (select from queues.deletion d where d.task_id = retry.task_id) then
    raise exception using errcode = 'QF412', message = format('task %s is deleted and cannot be retried', task_id),
      hint = 'Restore it first.';
  end if;

  perform queues.check_memory(task_id);
  _waits := (select o.task_id is not null from queues.first_open_child(retry.task_id, '', 1) o);
  if _waits then
    perform queues.wait_for_others(array[task_id], true, _now);
  else
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select t.task_id, _now, queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace), 0
    from queues.task t where t.task_id = retry.task_id;
  end if;
  -- With the token, so that a worker that repeats its accepted report does not get lost.
  insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
  values (task_id, 'retried', _now, _former.token, _former.attempt, _former.worker_id, queues.actor(), reason,
    jsonb_build_object(
    'status', _former.status, 'reason', _former.reason, 'claimed_at', _former.claimed_at,
    'started_at', _former.started_at, 'finished_at', _former.finished_at));
  perform queues.revive_dependants(task_id, _now);
  perform queues.revive_children(task_id, _now);
  perform queues.wake_for(task_id);
  return case when _waits then 'suspended' else 'pending' end;
end
$$;

comment on function queues.retry(uuid, text) is
  'Gives a failed, dead or cancelled task a new set of attempts from now on, and returns its status.';
