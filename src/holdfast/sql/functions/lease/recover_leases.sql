-- Makes tasks of silent workers ready again, or dead_letter if their attempts are used up, and counts both. A worker is
-- silent if its lease has ended or, with silent_since, if it counts as dead. Wakes idle workers for the ready tasks.
-- If its worker has told after the end of a lease that the task has not begun, the answer of the claim was lost or came
-- too late, or the task could not be given back: as after a release, the attempt does not count.
-- Internal: called by sweep, recover_workers and retire_worker, which have locked the leases.
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
  _unbegun uuid[];
  _one_per_lane uuid[];
begin
  with freed as (
    delete from queues.lease l where l.task_id = any (task_ids) returning l.*),
  settled as materialized (
    select f.*, w.unbegun, t.used >= t.max_attempts and not w.unbegun as over,
      case when w.unbegun then f.attempt - 1 else t.used end as used,
      case when w.unbegun then coalesce(f.run_at, t.run_at) else recover_leases.now end as due
    from freed f
    cross join lateral (
      select t.max_attempts, t.run_at, queues.attempts_used(f.task_id, f.token, f.attempt, f.generation) as used
      from queues.task t where t.task_id = f.task_id offset 0) t
    cross join lateral (
      -- With offset 0, so that the worker is looked up once, and not again for each column that depends on it.
      select f.started_at is null and silent_since is null and exists (
        -- A process that registered later under the same id knows nothing of this lease.
        select from queues.worker w
        where w.worker_id = f.worker_id and w.listed_at > f.lease_until and w.started_at <= f.claimed_at) as unbegun
      offset 0) w
    -- A lease beside an outcome or a ready row, which only a repair by hand can leave, must not stop the others.
    where (select true from queues.outcome o where o.task_id = f.task_id limit 1) is null
      and (select true from queues.ready r where r.task_id = f.task_id limit 1) is null),
  ended as (
    -- Without the token, so that a worker that reports later gets lost, not already_done.
    insert into queues.outcome (task_id, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select s.task_id, s.claimed_at, s.started_at, recover_leases.now, s.attempt, 'dead_letter', s.worker_id,
      'lease_expired'
    from settled s where s.over),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select s.task_id, s.due, s.lane_id, s.used from settled s where not s.over),
  released as (
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
    select s.task_id, 'released', recover_leases.now, s.token, s.attempt, s.worker_id, session_user,
      'its worker had not begun it', jsonb_build_object('claimed_at', s.claimed_at, 'started_at', null)
    from settled s where s.unbegun),
  erred as (
    insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind,
      message, worker_id, generation)
    select s.task_id, s.token, s.claimed_at, s.started_at, recover_leases.now,
      case when not s.over then recover_leases.now end, s.attempt, true,
      case when silent_since is null then 'lease_expired' else 'worker_lost' end,
      case when silent_since is null
        then format('worker %s was silent past the end of its lease at %s', s.worker_id, s.lease_until)
        else format('worker %s was silent since %s and counts as dead', s.worker_id, silent_since) end, s.worker_id,
      coalesce(s.generation, 1)
    from settled s where not s.unbegun)
  select count(*) filter (where not s.over), count(*) filter (where s.over),
    array_agg(s.task_id) filter (where s.deleted and not s.over), array_agg(s.task_id) filter (where s.awaited),
    array_agg(s.task_id) filter (where s.over), array_agg(s.task_id) filter (where s.unbegun and s.used = 0),
    array(select distinct on (s.lane_id) s.task_id from settled s where not s.over and s.deleted is not true)
  into recovered, dead, _parked, _awaited, _dead, _unbegun, _one_per_lane from settled s;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
  if _awaited is not null then
    perform queues.bring_back(_awaited);
  end if;
  if _unbegun is not null then
    perform queues.cancel_replaced(_unbegun);
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
