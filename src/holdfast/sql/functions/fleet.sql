-- The workers as a group: their registration, their leader, the types that they declare, and queues that are paused.
-- Invariant: at most one worker leads at a time by the clock of the database, and the number of the term only grows.
-- Nothing depends on it: every duty is safe if two perform it. A worker's row only tells others about it; which tasks
-- it has is decided by leases alone.
-- Lock order: the leadership, then the worker's row, then its leases, the last without waiting. Types are locked in
-- their order. A worker that asks while another one leads locks nothing.
-- At the same time: of two workers that want to lead, the second waits for the row, finds the term of the first and
-- does not lead. A claim that began before a queue was paused may still take tasks. A worker that was silent for too
-- long loses its row and its leases, learns that at its next heartbeat, and registers again.
-- Explained in docs/design/recovery.md.

-- Stops claims from a queue and returns whether it was active; running tasks continue.
-- For holdfast_operator. Locks: the queue's row in paused_queue.
create or replace function queues.pause(queue text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_name('queue', queue);
  reason := left(reason, 2000);
  insert into queues.paused_queue (queue, paused_at, paused_by, reason)
  values (queue, queues.clock(), queues.actor(), reason) on conflict do nothing;
  if not found then
    return false;
  end if;
  insert into queues.act (queue, act, occurred_at, actor, reason)
  values (queue, 'paused', queues.clock(), queues.actor(), reason);
  return true;
end
$$;

-- Allows claims from a paused queue again and returns whether it was paused.
-- For holdfast_operator. Locks: the queue's row in paused_queue.
create or replace function queues.resume(queue text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_name('queue', queue);
  reason := left(reason, 2000);
  delete from queues.paused_queue p where p.queue = resume.queue;
  if not found then
    return false;
  end if;
  insert into queues.act (queue, act, occurred_at, actor, reason)
  values (queue, 'resumed', queues.clock(), queues.actor(), reason);
  if queues.may_notify() then
    perform pg_notify('holdfast', resume.queue);
  end if;
  return true;
end
$$;

-- Returns whether a worker is registered, how long the current leader's term lasts unless it is renewed (null without a
-- leader), and how long until this worker should sweep. Usually the leader sweeps first, and the next call returns a
-- later time. Zero or less if the last sweep was over two seconds ago; null if there was no lease at the last sweep.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.fleet_state(
  worker_id text, out registered boolean, out term_left interval, out sweep_in interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  registered := exists (select from queues.worker w where w.worker_id = fleet_state.worker_id);
  term_left := (select l.leader_until - _now from queues.leadership l where l.leader_until >= _now);
  sweep_in := interval '0';
  -- A sweep that is later than the clock was made before the clock was set back.
  select s.next_expiry + interval '1 second' - _now into sweep_in from queues.last_sweep s
  where s.swept_at between _now - interval '2 seconds' and _now + interval '1 second';
  if not found then
    sweep_in := interval '0';
  end if;
end
$$;

-- Says of tasks that a worker holds and cannot start: whether another live worker has declared the type, and for how
-- long workers have postponed the task because none of them had its handler or could start its executor. One row per
-- task, in the given order.
-- For holdfast_worker. Locks: none.
create or replace function queues.handled_elsewhere(worker_id text, held jsonb)
returns table (task_id uuid, handled boolean, waiting interval)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _now constant timestamptz := queues.clock();
begin
  return query
  select h.task_id, coalesce((
      select true from queues.worker w
      where w.worker_id <> handled_elsewhere.worker_id and w.last_heartbeat > _now - w.timeout
        and t.type = any (w.types)
      limit 1), false),
    -- A task that was postponed is claimed again with the same number of the attempt.
    coalesce(_now - (
      select min(a.occurred_at) from queues.act a
      where a.task_id = h.task_id and a.act = 'snoozed' and a.attempt = l.attempt
        and a.data ->> 'kind' in ('no_handler_registered', 'executor_not_available', 'executor_failed')), interval '0')
  from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
  left join lateral (
    select l.attempt from queues.lease l
    where l.task_id = h.task_id and l.token = h.token and l.worker_id = handled_elsewhere.worker_id offset 0) l on true
  left join lateral (
    select t.type from queues.task t where t.task_id = h.task_id and l.attempt is not null offset 0) t on true
  order by h.n;
end
$$;

-- Makes the worker leader for a term, or renews its term, and returns whether it leads. Leadership is a convenience:
-- nothing is unsafe without a leader.
-- For holdfast_worker. Locks: the leadership, unless another worker leads.
create or replace function queues.lead(worker_id text, term interval default '15 seconds')
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- If a crash of the server lost this row, the leader would act beside the next one.
  _durable constant text := queues.commit_to_disk();
  _now timestamptz := queues.clock();
begin
  if worker_id is null or worker_id = '' or term is null
    or term not between interval '1 second' and interval '1 hour'
  then
    raise exception using errcode = 'QF400',
      message = 'lead needs a worker_id and a term between 1 second and 1 hour';
  end if;
  -- The most common case, without a lock.
  if exists (select from queues.leadership l where l.worker_id <> lead.worker_id and l.leader_until >= _now) then
    return false;
  end if;
  perform from queues.leadership l for update;
  -- Read after the row was locked: waiting for it must not extend the term.
  _now := queues.clock();
  insert into queues.leadership as l (worker_id, term, leader_since, leader_until)
  values (worker_id, 1, _now, _now + lead.term)
  on conflict (only_one) do update
  set worker_id = excluded.worker_id,
      term = l.term + (l.worker_id <> excluded.worker_id or l.leader_until < _now)::integer,
      leader_since = case when l.worker_id <> excluded.worker_id or l.leader_until < _now then _now
        else l.leader_since end,
      leader_until = excluded.leader_until
  where l.worker_id = excluded.worker_id or l.leader_until < _now;
  return found;
end
$$;

-- Stores the environment of a worker, once per start. It is kept for its runs after the worker is gone.
-- For holdfast_worker. Locks: none.
create or replace function queues.record_environment(worker_id text, environment jsonb)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_claim(worker_id, 1, null, null, null, null);
  if environment is null or jsonb_typeof(environment) <> 'object' then
    raise exception using errcode = 'QF400', message = 'environment must be an object';
  end if;
  insert into queues.worker_environment (worker_id, recorded_at, environment)
  values (worker_id, queues.clock(), queues.storable(environment, 16384))
  on conflict do nothing;
end
$$;

-- Declares the types that a worker handles. Tasks that do not set queue, priority, max_attempts, lease or deadline get
-- those of the newest declaration; timeout and executor are applied by the worker, which enforces the isolation that
-- its handler declares. A declaration changes no existing task, and cannot name an executor that acts with the rights
-- of the database: the caller that enqueues a task decides with which rights it runs.
-- For holdfast_worker. Locks: the types' rows, in their order.
create or replace function queues.register_types(types jsonb)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('types', types);
  _now constant timestamptz := queues.clock();
  _most constant integer := 10000;
  _max_schema_bytes constant integer := 65536;
  _odd text;
  _changed integer;
begin
  select k into _odd from jsonb_array_elements(types) e, jsonb_object_keys(e) k
  where k <> all (array['type', 'queue', 'priority', 'max_attempts', 'timeout', 'deadline', 'lease', 'executor',
    'schema']) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('types: %s is unknown', to_json(_odd)),
      hint = 'Allowed: type, queue, priority, max_attempts, timeout, deadline, lease, executor, schema.';
  end if;

  select e.n - 1 into _odd from jsonb_array_elements(types) with ordinality e(element, n)
  where jsonb_typeof(e.element -> 'schema') <> 'object'
    or octet_length((e.element -> 'schema')::text) > _max_schema_bytes
  limit 1;
  if found then
    raise exception using errcode = 'QF400',
      message = format('types[%s].schema is not an object of at most %s bytes', _odd, _max_schema_bytes);
  end if;

  -- The where clause refuses invalid elements before the select list casts their values.
  insert into queues.task_type as d (type, queue, priority, max_attempts, timeout, deadline, lease, executor, schema,
    registered_at, registered_by)
  select distinct on (e.type collate "C") e.type, e.queue, coalesce(e.priority::integer, 0),
    coalesce(e.max_attempts::integer, 3), e.timeout::interval, (e.element ->> 'deadline')::interval, e.lease::interval,
    coalesce(e.executor, 'python'), e.schema, _now, session_user
  from (
    select g.* from rows from (
      jsonb_to_recordset(types) as (type text, queue text, priority text, max_attempts text, timeout text, lease text,
        executor text, schema jsonb),
      jsonb_array_elements(types)) with ordinality
      g(type, queue, priority, max_attempts, timeout, lease, executor, schema, element, n)
    offset 0) e
  where queues.check_task(e.element - 'schema', e.type, e.queue, coalesce(e.executor, 'python'), e.priority, null,
    e.max_attempts, e.timeout, e.lease, null, '{}', null, null, false, format('types[%s].', e.n - 1), _now)
  order by e.type collate "C", e.n desc
  on conflict (type) do update
  set queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, deadline = excluded.deadline, lease = excluded.lease, executor = excluded.executor,
    schema = excluded.schema, registered_at = excluded.registered_at, registered_by = excluded.registered_by
  where (d.queue, d.priority, d.max_attempts, d.timeout, d.deadline, d.lease, d.executor, d.schema) is distinct from
    (excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout, excluded.deadline, excluded.lease,
      excluded.executor, excluded.schema);
  get diagnostics _changed = row_count;
  if _changed > 0 then
    perform queues.renew_routes();
  end if;

  if (select count(*) from queues.task_type) > _most then
    raise exception using errcode = 'QF400', message = format('more than %s types would be registered', _most),
      hint = 'Types are kinds of work: put data that differs from task to task into the payload.';
  end if;
  return _changed;
end
$$;

-- Registers a worker. A worker takes a new id at every start. If it is silent for longer than the timeout, it counts as
-- dead: it is removed, and other workers get its tasks. The types are those that it has handlers for. Returns the
-- setting max_result_bytes.
-- For holdfast_worker. Locks: the worker's row.
create or replace function queues.register_worker(
  worker_id text,
  hostname text default 'unknown',
  pid integer default null,
  version text default null,
  queues text[] default null,
  type_prefixes text[] default null,
  concurrency integer default 1,
  timeout interval default null,
  heartbeat interval default null,
  types text[] default null)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  perform queues.check_claim(worker_id, 1, queues, type_prefixes, null, null);
  if hostname is null or concurrency is null or concurrency < 1 then
    raise exception using errcode = 'QF400',
      message = case when hostname is null then 'hostname must not be null' else 'concurrency must be at least 1' end;
  end if;
  if timeout not between interval '5 seconds' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'timeout must be between 5 seconds and 1 day';
  elsif heartbeat not between interval '10 milliseconds' and interval '1 day' then
    raise exception using errcode = 'QF400', message = 'heartbeat must be between 10 milliseconds and 1 day';
  end if;
  insert into queues.worker as w (worker_id, hostname, pid, version, queues, type_prefixes, types, concurrency,
    in_flight, running, idle, started_at, last_heartbeat, timeout, heartbeat)
  values (worker_id, hostname, pid, version,
    coalesce(register_worker.queues, case when type_prefixes is null then array['default'] else '{}' end),
    coalesce(type_prefixes, '{}'), coalesce(register_worker.types, '{}'), concurrency, 0, 0, false, _now, _now,
    coalesce(register_worker.timeout,
      (select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds')),
    coalesce(register_worker.heartbeat, interval '10 seconds'))
  on conflict (worker_id) do update
  set hostname = excluded.hostname, pid = excluded.pid, version = excluded.version, queues = excluded.queues,
      type_prefixes = excluded.type_prefixes, types = excluded.types, concurrency = excluded.concurrency,
      in_flight = 0, running = 0,
      idle = false, started_at = excluded.started_at, last_heartbeat = excluded.last_heartbeat,
      timeout = excluded.timeout, heartbeat = excluded.heartbeat, memory_bytes = null, finished = null,
      per_second = null;
  return (select s.value from queues.setting s where s.name = 'max_result_bytes');
end
$$;

-- Ends the worker's term now, so that another one may lead at once, and returns whether it led. The number of the term
-- stays, because it only grows.
-- For holdfast_worker. Locks: the leadership.
create or replace function queues.resign(worker_id text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  update queues.leadership l set leader_until = _now - interval '1 microsecond'
  where l.worker_id = resign.worker_id and l.leader_until >= _now;
  return found;
end
$$;

-- Removes a worker from the registry, ends its leadership, and returns whether it was registered. Its leases end by
-- themselves. But if it lists what it has begun and neither ended nor released, its other leases are given back as by a
-- release, unless a heartbeat has told that the task has begun: the answer of a claim, or a release, was lost. What
-- another transaction has locked ends by itself.
-- For holdfast_worker. Locks: the leadership, then the worker's row, then its leases, without waiting.
create or replace function queues.retire_worker(worker_id text, begun jsonb default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := begun is null or queues.check_batch('begun', begun);
  _unbegun uuid[];
begin
  perform queues.resign(worker_id);
  perform from queues.worker w where w.worker_id = retire_worker.worker_id for update;
  if not found then
    return false;
  end if;
  if begun is not null then
    -- Reads the leases of all workers: every claim and every heartbeat would have to maintain an index.
    _unbegun := array(
      select l.task_id from queues.lease l
      where l.worker_id = retire_worker.worker_id and l.started_at is null
        and not exists (
          select from jsonb_to_recordset(begun) b(task_id uuid, token bigint)
          where b.task_id = l.task_id and b.token = l.token)
      limit 10000
      for update skip locked);
    if _unbegun <> '{}' then
      -- Its last word about them, which recover_leases looks for.
      update queues.worker w set listed_at = 'infinity' where w.worker_id = retire_worker.worker_id;
      perform queues.recover_leases(_unbegun, queues.clock());
    end if;
  end if;
  delete from queues.worker w where w.worker_id = retire_worker.worker_id;
  return true;
end
$$;

-- Returns the lines of queues.health about queues whose due tasks no live worker serves, the longest wait first.
-- For holdfast_worker. Locks: none.
create or replace function queues.unserved_queues()
returns setof queues.health_line
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select h.* from queues.health_of_queues(queues.clock()) h
  where h.check_name = 'unserved' order by h.value desc, h.subject
$$;
