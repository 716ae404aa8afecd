-- Puts tasks whose lease ended back to ready, or to dead_letter when their attempts are used up, and says how many.
-- Idle workers are woken for what is ready again. Any worker may call it, any number at once. For holdfast_worker and holdfast_operator.
-- Locks: lease rows, never waiting for one.
create or replace function queues.sweep(max_tasks integer default 1000)
returns table (recovered integer, dead integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _parked uuid[];
  _ended uuid[];
  _one_per_lane uuid[];
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  end if;

  with expired as materialized (
    select l.task_id, l.token from queues.lease l
    where l.lease_until < _now order by l.lease_until limit max_tasks
    for update skip locked),
  freed as (
    delete from queues.lease l using expired e
    where l.task_id = any (array(select task_id from expired)) and l.task_id = e.task_id and l.token = e.token
    returning l.*),
  settled as materialized (
    select f.*, f.attempt >= t.max_attempts as over
    from freed f
    cross join lateral (select t.max_attempts from queues.task t where t.task_id = f.task_id offset 0) t),
  ended as (
    -- Without the token: a worker that reports after this is told that it lost its lease, not that it was heard.
    insert into queues.outcome (task_id, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select s.task_id, s.claimed_at, s.started_at, _now, s.attempt, 'dead_letter', s.worker_id, 'lease_expired'
    from settled s where s.over),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select s.task_id, _now, s.lane_id, s.attempt from settled s where not s.over),
  erred as (
    insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind, message, worker_id)
    select s.task_id, s.token, s.claimed_at, s.started_at, _now, case when not s.over then _now end, s.attempt, true,
      'lease_expired', format('worker %s was silent past the end of its lease at %s', s.worker_id, s.lease_until), s.worker_id
    from settled s)
  select count(*) filter (where not s.over), count(*) filter (where s.over),
    array_agg(s.task_id) filter (where s.deleted and not s.over), array_agg(s.task_id) filter (where s.over),
    array(select distinct on (s.lane_id) s.task_id from settled s where not s.over and not s.deleted)
  into recovered, dead, _parked, _ended, _one_per_lane from settled s;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
  if _ended is not null then
    perform queues.tell_waiters(_ended);
  end if;
  perform queues.wake_for(r.task_id) from unnest(_one_per_lane) r(task_id);
  delete from queues.waiter w
  where w.task_id in (select held.task_id from queues.waiter held where held.until < _now for update skip locked);
  return next;
end
$$;

comment on function queues.sweep(integer) is
  'Puts tasks whose lease ended back to ready, or to dead_letter when their attempts are used up, and says how many.';
