-- Cancels a task that has not ended and returns its status, as cancel does for a caller who may.
-- Internal: called by cancel, find_unique and cancel_replaced. Locks: the ready row, else the lease, else the deletion;
-- by lock_task.
create or replace function queues.cancel_now(task_id uuid, reason text default null)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _found record;
  _token bigint;
  _attempt integer;
  _worker_id text;
begin
  reason := left(reason, 2000);
  select l.* into _found from queues.lock_task(task_id, array['ready', 'lease', 'deletion']) l;
  if _found.place = 'ready' then
    with waiting as (
      delete from queues.ready r where r.task_id = cancel_now.task_id returning r.task_id, r.attempt)
    insert into queues.outcome (task_id, finished_at, attempt, status, reason)
    select w.task_id, _now, w.attempt, 'cancelled', cancel_now.reason from waiting w;
  elsif _found.place = 'lease' then
    with held as (
      delete from queues.lease l where l.task_id = cancel_now.task_id returning l.*)
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select h.task_id, h.token, h.claimed_at, h.started_at, _now, h.attempt, 'cancelled', h.worker_id,
      cancel_now.reason from held h
    returning token, attempt, worker_id into _token, _attempt, _worker_id;
  elsif _found.place = 'deletion' then
    _attempt := _found.attempt;
    update queues.deletion d set parked_run_at = null, parked_attempt = null where d.task_id = cancel_now.task_id;
    insert into queues.outcome (task_id, finished_at, attempt, status, reason)
    values (task_id, _now, _attempt, 'cancelled', reason);
  else
    return coalesce(_found.status, queues.status_now(task_id));
  end if;

  insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason)
  values (task_id, 'cancelled', _now, _token, _attempt, _worker_id, queues.actor(), reason);
  perform queues.bring_back(array[task_id]);
  perform queues.end_waits(array[task_id]);
  perform queues.notify_waiters(array[task_id]);
  perform queues.call_error_handlers(array[task_id], 'cancelled', format('it was cancelled by %s', session_user)
    || coalesce(': ' || reason, ''), true, _token is not null, _now);
  perform queues.settle_joins(array[task_id], '{}', _now);
  return 'cancelled';
end
$$;

comment on function queues.cancel_now(uuid, text) is
  'Cancels a task that has not ended and returns its status, as cancel does for a caller who may.';
