-- Removes workers that were silent for longer than their timeout, and recovers their tasks at once. The tasks become
-- ready, or dead_letter if their attempts are used up. Returns each worker with the number of tasks; queues.loss also
-- counts those that sweeps have recovered since its last heartbeat. A worker with more tasks, or with a lease that is
-- locked, stays for the next call. After an outage, workers have two heartbeats to come back. Any number of sessions
-- may call it at once.
-- For holdfast_worker and holdfast_operator. Locks: the rows of silent workers, then their leases, without waiting.
create or replace function queues.recover_workers(max_tasks integer default 1000)
returns table (worker_id text, last_heartbeat timestamptz, recovered integer, dead integer, removed boolean)
language plpgsql volatile security definer rows 10
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _since constant timestamptz := queues.reachable_since(_now);
  _room integer := max_tasks;
  _worker queues.worker;
  _held uuid[];
  _swept record;
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  end if;
  for _worker in
    select w.* from queues.worker w
    where w.last_heartbeat < _now - w.timeout and _since < _now - 2 * w.heartbeat order by w.last_heartbeat limit 20
    for update skip locked
  loop
    -- Reads the leases of all workers: every claim and every heartbeat would have to maintain an index.
    _held := array(
      select l.task_id from queues.lease l where l.worker_id = _worker.worker_id limit _room
      for update skip locked);
    continue when _held = '{}' and exists (select from queues.lease l where l.worker_id = _worker.worker_id);
    select r.recovered, r.dead into recovered, dead from queues.recover_leases(_held, _now, _worker.last_heartbeat) r;
    -- Tasks whose lease ended earlier were recovered by a sweep.
    select c.recovered, c.dead into _swept from queues.count_swept(_worker.worker_id, _worker.last_heartbeat) c;
    insert into queues.loss as l (worker_id, hostname, pid, started_at, last_heartbeat, lost_at, recovered, dead)
    values (_worker.worker_id, _worker.hostname, _worker.pid, _worker.started_at, _worker.last_heartbeat, _now,
      recovered + _swept.recovered, dead + _swept.dead)
    on conflict (worker_id, last_heartbeat) do update
    set recovered = l.recovered + recover_workers.recovered, dead = l.dead + recover_workers.dead;
    _room := _room - cardinality(_held);
    delete from queues.worker w
    where w.worker_id = _worker.worker_id
      and not exists (select from queues.lease l where l.worker_id = _worker.worker_id);
    removed := found;
    if removed then
      perform queues.emit_worker_lost(_worker.worker_id, _worker.last_heartbeat);
    end if;
    worker_id := _worker.worker_id;
    last_heartbeat := _worker.last_heartbeat;
    return next;
    exit when _room = 0;
  end loop;
end
$$;

comment on function queues.recover_workers(integer) is
  'Removes workers that were silent for longer than their timeout, and recovers their tasks at once.';
