-- Releases unfinished tasks of a worker: the attempt does not count, and the task keeps its position, unless a later
-- debounced one has replaced it. Wakes idle workers. Returns released, already_done, cancelled or lost, or busy if
-- another transaction has locked the lease.
-- For holdfast_worker. Locks: lease rows, without waiting.
create or replace function queues.release(worker_id text, held jsonb)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _now constant timestamptz := queues.clock();
  _released integer[];
  _parked uuid[];
  _awaited uuid[];
  _unbegun uuid[];
  _one_per_lane uuid[];
begin
  with given as materialized (
    select h.n::integer as n, h.task_id, h.token
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
    order by h.task_id),
  free as materialized (
    select g.* from given g
    cross join lateral (
      select from queues.lease l
      where l.task_id = g.task_id and l.token = g.token and l.worker_id = release.worker_id for update skip locked) l),
  freed as (
    delete from queues.lease l using free g
    where l.task_id = any (array(select task_id from free)) and l.task_id = g.task_id
    returning l.*, g.n),
  returned as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select f.task_id, coalesce(f.run_at, (select t.run_at from queues.task t where t.task_id = f.task_id)), f.lane_id,
      f.attempt - 1
    from freed f),
  recorded as (
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, data)
    select f.task_id, 'released', _now, f.token, f.attempt, f.worker_id, session_user,
      jsonb_build_object('claimed_at', f.claimed_at, 'started_at', f.started_at)
    from freed f)
  select coalesce(array_agg(f.n), '{}'), array_agg(f.task_id) filter (where f.deleted),
    array_agg(f.task_id) filter (where f.awaited), array_agg(f.task_id) filter (where f.attempt = 1),
    array(select distinct on (f.lane_id) f.task_id from freed f where f.deleted is not true)
  into _released, _parked, _awaited, _unbegun, _one_per_lane from freed f;

  if _parked is not null then
    perform queues.park(_parked);
  end if;
  if _awaited is not null then
    perform queues.bring_back(_awaited);
  end if;
  if _unbegun is not null then
    perform queues.cancel_replaced(_unbegun);
  end if;
  perform queues.wake_for(r.task_id) from unnest(_one_per_lane) r(task_id);
  return query
  select h.task_id, case
      when h.n = any (_released) then 'released'
      -- Avoids exists, which the planner may implement by reading a whole table once.
      when (select true from queues.act a
        where a.task_id = h.task_id and a.token = h.token and a.act = 'released' limit 1) then 'already_done'
      when (select true from queues.outcome o
        where o.task_id = h.task_id and o.token = h.token and o.status = 'cancelled' limit 1) then 'cancelled'
      when (select true from queues.lease l
        where l.task_id = h.task_id and l.token = h.token and l.worker_id = release.worker_id limit 1) then 'busy'
      else 'lost' end
  from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
  order by h.n;
end
$$;

comment on function queues.release(text, jsonb) is
  'Releases unfinished tasks of a worker: the attempt does not count, and the task keeps its position.';
