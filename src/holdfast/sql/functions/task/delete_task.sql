-- Soft-deletes a task: it is never claimed again, its key is free, and it can be restored. Works in every status. A
-- running task may still end; its worker is told at its next heartbeat. Returns deleted.
-- For holdfast_operator. Locks: the ready row, else the lease, else the outcome, by lock_task; then the deletion, then
-- the key.
create or replace function queues.delete_task(task_id uuid, reason text default null)
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
  _place text;
  _waiting queues.ready;
begin
  perform queues.check_task_owner(task_id);
  reason := left(reason, 2000);
  if exists (select from queues.deletion d where d.task_id = delete_task.task_id) then
    return 'deleted';
  end if;
  select l.place into _place from queues.lock_task(task_id, array['ready', 'lease', 'outcome']) l;
  if _place = 'ready' then
    delete from queues.ready r where r.task_id = delete_task.task_id returning r.* into _waiting;
  elsif _place = 'lease' then
    update queues.lease l set deleted = true where l.task_id = delete_task.task_id;
  elsif _place = 'outcome' then
    -- An update and not only a lock, so that a retry with an older snapshot, which does not see the deletion, fails.
    update queues.outcome o set status = o.status where o.task_id = delete_task.task_id;
  elsif _place is null then
    perform queues.status_now(task_id);
  end if;

  insert into queues.deletion (task_id, deleted_at, deleted_by, reason, parked_run_at, parked_attempt)
  values (task_id, _now, queues.actor(), reason, _waiting.run_at, _waiting.attempt)
  on conflict do nothing;
  if found then
    if _waiting.task_id is not null then
      perform queues.bring_back(array[task_id]);
    end if;
    delete from queues.task_key k using queues.task t
    where t.task_id = delete_task.task_id and k.type = t.type and k.idempotency_key = t.idempotency_key
      and k.namespace = t.namespace
      and k.task_id = t.task_id;
    insert into queues.act (task_id, act, occurred_at, actor, reason)
    values (task_id, 'deleted', _now, queues.actor(), reason);
    perform queues.mark_joins(array[task_id]);
  end if;
  return 'deleted';
end
$$;

comment on function queues.delete_task(uuid, text) is
  'Soft-deletes a task: it is never claimed again, its key is free, and it can be restored.';
