-- Makes tasks of silent workers ready again, or dead_letter if their attempts are used up, and counts both. A worker is
-- silent if its lease has ended or, with silent_since, if it counts as dead. Wakes idle workers for the ready tasks.
-- Internal: called by sweep and recover_workers, which have locked the leases.
create or replace function queues.recover_leases(
  task_ids uuid[], now timestamptz, silent_since timestamptz default null, out recovered integer, out dead integer)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _parked uuid[];
  _awaited uuid[];
  _dead uuid[];
  _one_per_lane uuid[];
begin
  with freed as (
    delete from queues.lease l where l.task_id = any (task_ids) returning l.*),
  settled as materialized (
    select f.*, t.used, t.used >= t.max_attempts as over
    from freed f
    cross join lateral (
      select t.max_attempts, queues.attempts_used(f.task_id, f.token, f.attempt) as used
      from queues.task t where t.task_id = f.task_id offset 0) t),
  ended as (
    -- Without the token, so that a worker that reports later gets lost, not already_done.
    insert into queues.outcome (task_id, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select s.task_id, s.claimed_at, s.started_at, recover_leases.now, s.attempt, 'dead_letter', s.worker_id,
      'lease_expired'
    from settled s where s.over),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select s.task_id, recover_leases.now, s.lane_id, s.used from settled s where not s.over),
  erred as (
    insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind,
      message, worker_id)
    select s.task_id, s.token, s.claimed_at, s.started_at, recover_leases.now,
      case when not s.over then recover_leases.now end, s.attempt, true,
      case when silent_since is null then 'lease_expired' else 'worker_lost' end,
      case when silent_since is null
        then format('worker %s was silent past the end of its lease at %s', s.worker_id, s.lease_until)
        else format('worker %s was silent since %s and counts as dead', s.worker_id, silent_since) end, s.worker_id
    from settled s)
  select count(*) filter (where not s.over), count(*) filter (where s.over),
    array_agg(s.task_id) filter (where s.deleted and not s.over), array_agg(s.task_id) filter (where s.awaited),
    array_agg(s.task_id) filter (where s.over),
    array(select distinct on (s.lane_id) s.task_id from settled s where not s.over and s.deleted is not true)
  into recovered, dead, _parked, _awaited, _dead, _one_per_lane from settled s;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
  if _awaited is not null then
    perform queues.bring_back(_awaited);
  end if;
  perform queues.notify_waiters(task_ids);
  if _dead is not null then
    perform queues.end_waits(_dead);
    perform queues.call_error_handlers(_dead, 'outcome_unknown',
      'its worker was silent, and there are no attempts left', false, true, recover_leases.now);
  end if;
  perform queues.wake_for(r.task_id) from unnest(_one_per_lane) r(task_id);
end
$$;

comment on function queues.recover_leases(uuid[], timestamptz, timestamptz) is
  'Makes tasks of silent workers ready again, or dead_letter if their attempts are used up, and counts both.';
