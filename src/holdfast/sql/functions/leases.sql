-- Leases while a task runs, and their end without a report: heartbeats renew them, a release gives tasks back, a sweep
-- takes them from silent workers.
-- Invariant: a worker reports about a lease only with its token. Without a report, it is taken away only after
-- lease_until, or when its worker counts as dead or retires. It is removed in the same statement that writes the ready
-- row or the outcome, so a task is never lost and never in two places.
-- Lock order: leases, then the worker's row; for dead workers the worker's row, then its leases. All of them without
-- waiting. Then deletions of tasks that were deleted while they ran.
-- At the same time: a heartbeat and a sweep of one lease exclude each other by its row: the second skips it, and later
-- finds it renewed or gone. A worker that is late but not swept keeps its tasks. A lease that an application has
-- locked, to cancel the task, is not swept, and its heartbeat gets busy; the others of the call are renewed. Any number
-- of sweeps may run: each takes what no other has locked.
-- Explained in docs/design/recovery.md.

-- Renews the leases of a worker and returns a verdict for each: held, cancelled, deleted, lost or busy. If another
-- transaction has locked a lease (an application that has called cancel and not committed), its verdict is busy: it is
-- not renewed, and the others are. Also records the memory of the worker, how many attempts have ended and how many did
-- so per second. If the list is complete, a task without started_at has not begun: see sweep. A task may have a
-- trouble, the name of what delays its run, for health.
-- For holdfast_worker. Locks: lease rows, then the worker's row, without waiting.
create or replace function queues.heartbeat(
  worker_id text, held jsonb, memory_bytes bigint default null, finished bigint default null,
  per_second real default null, complete boolean default true)
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
  _kept integer[];
  _deleted integer[];
  _running integer;
  _busy integer[] := '{}';
  _unwritten boolean := false;
  _troubles jsonb;
begin
  with given as materialized (
    select distinct on (h.task_id, h.token) h.n::integer as n, h.task_id, h.token, h.started_at, h.progress
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint, started_at timestamptz, progress jsonb))
      with ordinality h(task_id, token, started_at, progress, n)
    order by h.task_id, h.token, h.n),
  free as materialized (
    select g.* from given g
    cross join lateral (
      select from queues.lease l
      where l.task_id = g.task_id and l.token = g.token and l.worker_id = heartbeat.worker_id
      for no key update skip locked) l),
  beaten as (
    update queues.lease l
    set lease_until = _now + l.lease_ms * interval '1 millisecond',
        started_at = coalesce(l.started_at,
          case when g.started_at is not null then greatest(l.claimed_at, least(g.started_at, _now)) end),
        progress = case when octet_length(queues.safe_text(g.progress)) <= 8192 then g.progress else l.progress end
    from free g
    where l.task_id = any (array(select task_id from free)) and l.task_id = g.task_id
    returning g.n, l.deleted, l.started_at)
  select coalesce(array_agg(b.n), '{}'), coalesce(array_agg(b.n) filter (where b.deleted), '{}'), count(b.started_at)
  into _kept, _deleted, _running from beaten b;

  if cardinality(_kept) < jsonb_array_length(held) then
    -- A separate statement, so that it sees what was committed since the first one began.
    _busy := array(
      select h.n
      from (
        select h.task_id, h.token, min(h.n)::integer as n
        from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
        group by h.task_id, h.token) h
      cross join lateral (
        select from queues.lease l
        where l.task_id = h.task_id and l.token = h.token and l.worker_id = heartbeat.worker_id offset 0) l
      where not h.n = any (_kept));
    -- That these have begun could not be written down.
    _unwritten := exists (select from unnest(_busy) b(n) where held -> (b.n - 1) ->> 'started_at' is not null);
  end if;
  if held::text like '%"trouble"%' then
    select jsonb_agg(h.entry) into _troubles from (
      select jsonb_build_object('task_id', h.task_id, 'token', h.token, 'trouble', h.trouble) as entry
      from jsonb_to_recordset(held) as h(task_id uuid, token bigint, trouble text)
      where octet_length(h.trouble) <= 40 limit 20) h;
  end if;
  update queues.worker w
  set last_heartbeat = _now, listed_at = case when complete and not _unwritten then _now else w.listed_at end,
    in_flight = cardinality(_kept) + cardinality(_busy), running = _running,
    memory_bytes = coalesce(heartbeat.memory_bytes, w.memory_bytes),
    finished = coalesce(heartbeat.finished, w.finished),
    per_second = coalesce(heartbeat.per_second, w.per_second),
    troubles = coalesce(_troubles, case when not complete then w.troubles end)
  where w.worker_id in (
    select own.worker_id from queues.worker own
    where own.worker_id = heartbeat.worker_id for no key update skip locked);

  -- A separate statement, so that it sees what was committed meanwhile.
  return query
  select h.task_id, case
      when h.n = any (_deleted) then 'deleted'
      when h.n = any (_kept) then 'held'
      when h.n = any (_busy) then 'busy'
      when o.status = 'cancelled' then 'cancelled'
      else 'lost' end
  from (
    select h.task_id, h.token, h.n as place, min(h.n) over (partition by h.task_id, h.token) as n
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)) h
  left join lateral (
    select o.status from queues.outcome o
    where o.task_id = h.task_id and o.token = h.token and not h.n = any (_kept) offset 0) o on true
  order by h.place;
end
$$;

-- Makes tasks with ended leases ready again, or dead_letter if their attempts are used up, and counts both. If a task
-- may not have begun and its worker is not late, it waits until the worker has told which tasks have begun: one that
-- has not keeps its attempt. After an outage, no worker is late at first. Wakes idle workers for the ready tasks.
-- Records when it looked, and when the next lease ends. Does nothing else, so that nothing else can undo it: see
-- do_chores. Any number of workers may call it at once.
-- For holdfast_worker and holdfast_operator. Locks: lease rows, without waiting.
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
  -- 256 MB: as long as the table is smaller, one call reads all of it. It is larger only if vacuum cannot keep up.
  _most constant bigint := 32768;
  _now constant timestamptz := queues.clock();
  _pages constant bigint := pg_relation_size('queues.lease') / current_setting('block_size')::bigint;
  _since constant timestamptz := queues.reachable_since(_now);
  _page bigint := coalesce((select s.next_page from queues.last_sweep s), 0);
  _from tid;
  _to tid;
  _first timestamptz;
  _expired uuid[] := '{}';
begin
  perform queues.check_number('max_tasks', max_tasks, 1, 10000);

  _page := case when _page < _pages then _page else 0 end;
  _from := format('(%s,0)', _page)::tid;
  -- Rows that are inserted meanwhile may be behind the last page.
  _to := format('(%s,0)', least(_page + _most, 4294967295))::tid;
  -- A range of pages instead of an index: every heartbeat would have to write an index on lease_until.
  _first := (select min(l.lease_until) from queues.lease l where l.ctid >= _from and l.ctid < _to);
  if _first < _now then
    _expired := array(
      select l.task_id from queues.lease l
      where l.ctid >= _from and l.ctid < _to and l.lease_until < _now
        and (l.started_at is not null
          -- Read once. Looking up the worker of every ended lease would cost most when all workers have died at once.
          or l.worker_id not in (
            select w.worker_id from queues.worker w
            where greatest(w.last_heartbeat, _since) > _now - 2 * w.heartbeat)
          or exists (
            select from queues.worker w where w.worker_id = l.worker_id and w.listed_at > l.lease_until))
      order by l.lease_until, l.task_id limit max_tasks
      for update skip locked);
  end if;
  recovered := 0;
  dead := 0;
  if _expired <> '{}' then
    perform queues.commit_to_disk();
    select r.recovered, r.dead into recovered, dead from queues.recover_leases(_expired, _now) r;
  end if;

  -- If leases were left over, the others look again in a second, unless another sweep is first.
  _first := case when _page > 0 or _pages > _most or _first < _now then _now else _first end;
  -- Stays at these pages until all their ended leases are recovered.
  _page := case when cardinality(_expired) < max_tasks and _page + _most < _pages then _page + _most
    when cardinality(_expired) < max_tasks then 0 else _page end;
  update queues.last_sweep s set swept_at = _now, reachable_since = _since, next_expiry = _first, next_page = _page
  where s.only_one in (select l.only_one from queues.last_sweep l for no key update skip locked);
  if not found and not exists (select from queues.last_sweep) then
    -- A crash has emptied the table. May wait for another sweep that is here, too, and waits for nothing.
    insert into queues.last_sweep (swept_at, reachable_since, next_expiry, next_page)
    values (_now, _since, _first, _page)
    on conflict do nothing;
  end if;
  return next;
end
$$;

-- Returns since when workers reach this database. Workers sweep every second, so after a longer gap it was away, or
-- there was no worker: those that live need a moment to come back, and are not late before.
create or replace function queues.reachable_since(now timestamptz)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((
    select s.reachable_since from queues.last_sweep s
    -- A later sweep was made before the clock was set back.
    where s.swept_at between now - interval '5 seconds' and now + interval '1 second'
      -- If the one before it was the first after a gap, too, then sweeps are rare, and tell nothing.
      or s.swept_at = s.reachable_since), now)
$$;

-- Makes tasks of silent workers ready again, or dead_letter if their attempts are used up, and counts both. A worker is
-- silent if its lease has ended or, with silent_since, if it counts as dead. Wakes idle workers for the ready tasks. If
-- its worker has told after the end of a lease that the task has not begun, the answer of the claim was lost or came
-- too late, or the task could not be given back: as after a release, the attempt does not count.
-- Internal: called by sweep, recover_workers and retire_worker, which have locked the leases.
create or replace function queues.recover_leases(
  task_ids uuid[], now timestamptz, silent_since timestamptz default null, out recovered integer, out dead integer)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ends queues.lease_end[];
  _ended uuid[];
begin
  with settled as (
    select f.*, w.unbegun, t.used >= t.max_attempts and not w.unbegun as over,
      case when w.unbegun then f.attempt - 1 else t.used end as used,
      case when w.unbegun then coalesce(f.run_at, t.run_at) else recover_leases.now end as due
    from queues.lease f
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
    where f.task_id = any (task_ids))
  select array_agg(row(s.task_id, null, case when s.over then 'dead_letter' end, s.used, s.due, s.started_at, null,
    case when s.unbegun then 'its worker had not begun it' else 'lease_expired' end, null, null,
    case when s.unbegun then 'released' end, null,
    case when not s.unbegun then case when silent_since is null then 'lease_expired' else 'worker_lost' end end,
    case when not s.unbegun then case when silent_since is null
      then format('worker %s was silent past the end of its lease at %s', s.worker_id, s.lease_until)
      else format('worker %s was silent since %s and counts as dead', s.worker_id, silent_since) end end, null, true,
    true)::queues.lease_end)
  into _ends from settled s;
  _ended := (select e.task_ids from queues.end_leases(_ends, now) e);
  select count(*) filter (where e.status is null), count(e.status) into recovered, dead
  from unnest(_ends) e where e.task_id = any (_ended);
end
$$;

-- Returns how many attempts a failed one leaves used. Attempts count only while a run makes no progress: if a step was
-- recorded under this claim, or comes with its report, the count restarts with this attempt.
create or replace function queues.attempts_used(
  task_id uuid, token bigint, attempt integer, generation integer, steps jsonb default null)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when attempt > 1 and (jsonb_array_length(steps) > 0 or (
      select true from queues.step s
      where s.task_id = attempts_used.task_id and s.generation = coalesce(attempts_used.generation, 1)
        and s.token = attempts_used.token limit 1))
    then 1 else attempt end
$$;

-- Removes tasks that were deleted while they ran from the ready rows, until they are restored. Runs after the statement
-- that made them ready, so that it sees a deletion committed at any time before.
-- Internal: called by end_leases. Locks: deletions. It waits for nobody who restores or
-- cancels such a task: they lock its lease first, and the caller has that.
create or replace function queues.park(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with deleted as materialized (
    -- Tasks that were restored meanwhile have no deletion here, and stay ready.
    select d.task_id from queues.deletion d where d.task_id = any (task_ids) order by d.task_id for update),
  moved as (
    delete from queues.ready r where r.task_id = any (array(select task_id from deleted))
    returning r.task_id, r.run_at, r.attempt)
  update queues.deletion d
  set parked_run_at = m.run_at, parked_attempt = m.attempt
  from moved m where d.task_id = m.task_id
$$;

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
  _ends queues.lease_end[];
begin
  with given as materialized (
    select h.n::integer as n, h.task_id, h.token
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
    order by h.task_id),
  held as (
    select g.n, l.* from given g
    cross join lateral (
      select l.* from queues.lease l
      where l.task_id = g.task_id and l.token = g.token and l.worker_id = release.worker_id for update skip locked) l)
  select array_agg(row(f.task_id, f.n, null, f.attempt - 1,
    coalesce(f.run_at, (select t.run_at from queues.task t where t.task_id = f.task_id)), f.started_at, null, null,
    null, null, 'released', null, null, null, null, false, true)::queues.lease_end)
  into _ends from held f;
  _released := case when _ends is null then '{}' else (select e.places from queues.end_leases(_ends, _now) e) end;
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

-- Returns the last error of a task that the worker holds, in its current generation, or null. Also returns how long ago
-- the first failed attempt was claimed. A worker must know what may have happened outside the database before it
-- repeats it.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.last_error(worker_id text, task_id uuid, token bigint)
returns table (kind text, recovered boolean, detail jsonb, age interval)
language sql stable security definer rows 1
set search_path = pg_catalog, pg_temp
as $$
  select e.kind, e.recovered, e.detail,
    queues.clock() - (select min(f.claimed_at) from queues.error f
      where f.task_id = l.task_id and f.step is null and f.generation = coalesce(l.generation, 1))
  from queues.lease l
  cross join lateral (
    select e.kind, e.recovered, e.detail from queues.error e
    where e.task_id = l.task_id and e.step is null and e.generation = coalesce(l.generation, 1)
    order by e.error_id desc limit 1) e
  where l.task_id = last_error.task_id and l.token = last_error.token and l.worker_id = last_error.worker_id
$$;

-- Returns the tasks that a worker holds, those that run for the longest time first. Reads the leases of all workers,
-- which are as many as tasks are running.
-- For holdfast_reader. Locks: nothing.
create or replace function queues.held_by(worker_id text, max_tasks integer default 100)
returns table (task_id uuid, claimed_at timestamptz, started_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
  perform queues.check_number('max_tasks', max_tasks, 1, 1000);
  return query
  select l.task_id, l.claimed_at, l.started_at from queues.lease l
  where l.worker_id = held_by.worker_id
  order by l.started_at, l.claimed_at, l.task_id limit max_tasks;
end
$$;

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
  perform queues.check_number('max_tasks', max_tasks, 1, 10000);
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

-- Returns how many leases of a worker a sweep has recovered since a time. Reads the newest 10,000 errors, because an
-- index would cost every error.
create or replace function queues.count_swept(
  worker_id text, since timestamptz, out recovered integer, out dead integer)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select count(e.retry_at)::integer, (count(*) - count(e.retry_at))::integer
  from (
    select e.worker_id, e.kind, e.occurred_at, e.retry_at from queues.error e order by e.error_id desc limit 10000) e
  where e.worker_id = count_swept.worker_id and e.kind = 'lease_expired' and e.occurred_at >= since
$$;

-- Returns the default delay before a retry: doubling from 2 seconds to 5 minutes, plus up to half at random.
create or replace function queues.backoff(attempt integer)
returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select least(300, 2 ^ least(attempt, 20)) * (1 + random() / 2) * interval '1 second' $$;

-- Returns the attempt that was made with this token, and its worker; nulls if the task was never held with it.
-- Internal: called by record_killed and insert_steps. Locks: none.
create or replace function queues.attempt_by_token(task_id uuid, token bigint, out attempt integer, out worker_id text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select found.attempt, found.worker_id
  from (select 1) one
  left join lateral (
    (select l.attempt, l.worker_id from queues.lease l
     where l.task_id = $1 and l.token = $2 limit 1)
    union all
    (select o.attempt, o.worker_id from queues.outcome o
     where o.task_id = $1 and o.token = $2 limit 1)
    union all
    (select a.attempt, a.worker_id from queues.act a
     where a.task_id = $1 and a.token = $2 and a.worker_id is not null limit 1)
    union all
    (select e.attempt, e.worker_id from queues.error e
     where e.task_id = $1 and e.token = $2 limit 1)
    limit 1) found on true
$$;
