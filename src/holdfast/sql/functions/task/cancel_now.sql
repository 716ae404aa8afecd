-- Cancels a task that has not ended and returns its status, as cancel does for a caller who may.
-- Internal: called by cancel, find_unique and cancel_replaced. Locks: the ready row, else the lease, else the deletion.
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
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _status text;
  _token bigint;
  _attempt integer;
  _worker_id text;
begin
  reason := left(reason, 2000);
  -- A task may move from one table to the next between two reads: repeat until it is found.
  for _try in 1..100 loop
    with waiting as (
      delete from queues.ready r where r.task_id = cancel_now.task_id returning r.task_id, r.attempt)
    insert into queues.outcome (task_id, finished_at, attempt, status, reason)
    select w.task_id, _now, w.attempt, 'cancelled', cancel_now.reason from waiting w;
    exit when found;

    with held as (
      delete from queues.lease l where l.task_id = cancel_now.task_id returning l.*)
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select h.task_id, h.token, h.claimed_at, h.started_at, _now, h.attempt, 'cancelled', h.worker_id,
      cancel_now.reason from held h
    returning token, attempt, worker_id into _token, _attempt, _worker_id;
    exit when found;

    select d.parked_attempt into _attempt from queues.deletion d
    where d.task_id = cancel_now.task_id and d.parked_run_at is not null for update;
    if found then
      update queues.deletion d set parked_run_at = null, parked_attempt = null
      where d.task_id = cancel_now.task_id;
      insert into queues.outcome (task_id, finished_at, attempt, status, reason)
      values (task_id, _now, _attempt, 'cancelled', reason);
      exit;
    end if;

    select o.status into _status from queues.outcome o where o.task_id = cancel_now.task_id;
    if found then
      return _status;
    end if;
    perform queues.check_retries(_try, task_id);
  end loop;

  insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason)
  values (task_id, 'cancelled', _now, _token, _attempt, _worker_id, queues.actor(), reason);
  perform queues.bring_back(array[task_id]);
  perform queues.end_waits(array[task_id]);
  perform queues.notify_waiters(array[task_id]);
  perform queues.call_error_handlers(array[task_id], 'cancelled', format('it was cancelled by %s', session_user)
    || coalesce(': ' || reason, ''), true, _token is not null, _now);
  perform queues.settle_joins(array[task_id], '{}', _now);
  perform queues.cancel_unwanted(_now);
  return 'cancelled';
end
$$;

comment on function queues.cancel_now(uuid, text) is
  'Cancels a task that has not ended and returns its status, as cancel does for a caller who may.';
