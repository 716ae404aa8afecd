-- Notifications: idle workers learn of new tasks, clients of the end of a task or process.
-- Invariant: a notification is only a hint. A receiver that misses one finds out by looking: a worker after some
-- seconds, a client in its next poll. So none is sent where no receiver waits, where a worker throttles the wake-ups of
-- a queue, or where the server's queue of notifications is half full. No worker throttles a queue for longer than half
-- a second without asking again.
-- Lock order: rows of queues.wakeup_throttle by queue, and those of queues.waiter by task_id, both waiting; the end of
-- a task skips waiters, and a worker that rests skips its own row. Those of queues.waiter come after all other rows.
-- At the same time: a client that begins to watch writes its row first and reads the status afterwards, so it sees
-- every end that was committed before. An end whose transaction did not see the row sends nothing, and the next poll
-- finds it. Two workers that want to throttle the same queue wait for each other, and one gets it. release_wakeups
-- wakes workers for what was enqueued meanwhile.
-- Explained in docs/design/enqueue.md.

-- Throttles the wake-ups of queues for half a second: enqueueing sends none, and this worker sends them instead. It
-- calls notify_idle for that. Calling it again in time extends it; if the worker dies or hangs, it expires. Returns the
-- queues whose wake-ups this worker now throttles; other workers have the rest.
-- For holdfast_worker. Locks: the rows of queues.wakeup_throttle, by name.
create or replace function queues.hold_wakeups(worker_id text, queues text[])
returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_claim(worker_id, 1, null, null, null, null);
  _now constant timestamptz := queues.clock();
  _kept text[];
begin
  with kept as (
    insert into queues.wakeup_throttle as d (queue, worker_id, kept_until)
    select distinct asked.queue, hold_wakeups.worker_id, _now + interval '500 milliseconds'
    from unnest(hold_wakeups.queues) asked(queue) where asked.queue is not null order by asked.queue
    on conflict (queue) do update set worker_id = excluded.worker_id, kept_until = excluded.kept_until
    where d.worker_id = excluded.worker_id or d.kept_until not between _now and _now + interval '1 second'
    returning d.queue)
  select array_agg(k.queue) into _kept from kept k;
  return coalesce(_kept, '{}');
end
$$;

-- Stops throttling the wake-ups of queues, and wakes idle workers for tasks that are due soon. Call notify_idle once
-- afterwards for tasks that are due, because tasks enqueued until now woke no worker.
-- For holdfast_worker. Locks: the rows of queues.wakeup_throttle.
create or replace function queues.release_wakeups(worker_id text, queues text[])
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  delete from queues.wakeup_throttle d
  where d.queue in (
    select kept.queue from queues.wakeup_throttle kept
    where kept.queue = any (release_wakeups.queues) and kept.worker_id = release_wakeups.worker_id
    for update skip locked);
  if not queues.may_notify() then
    return;
  end if;
  -- Tasks that are due soon sent no wake-up, and notify_idle only looks for those that are due.
  perform pg_notify('holdfast', soon.queue)
  from (
    select distinct l.queue from queues.lane l
    cross join lateral (
      select from queues.ready r
      where r.lane_id = l.lane_id and r.run_at > _now and r.run_at <= _now + interval '6 seconds'
      order by r.run_at, r.task_id limit 1) r
    where l.queue = any (release_wakeups.queues)) soon
  where exists (
    select from queues.worker w where w.idle and (soon.queue = any (w.queues) or cardinality(w.type_prefixes) > 0));
end
$$;

-- Returns whether the transaction may notify. Every login may fill the queue of notifications, which the whole server
-- shares, by listening in an open transaction; when it is full, every commit that notifies fails. All notifications of
-- the engine are hints, so none is sent while more than half of the queue is in use: who misses one polls. A session
-- that has to prepare its transaction (Citus) sets holdfast.quiet, because PostgreSQL cannot prepare one that has
-- notified. Call it last, once it is known that somebody waits: it takes the lock of the queue, as a notification does.
-- Internal. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.may_notify()
returns boolean
language sql volatile
as $$ select coalesce(pg_catalog.current_setting('holdfast.quiet', true), '') <> 'on'
  and pg_catalog.pg_notification_queue_usage() <= 0.5 $$;

-- Wakes idle workers of queues with a task that just became due and still waits; returns whether there is one. Just
-- means within the last quarter of a second. Tasks that have waited longer wait for something else: a limit, or a
-- worker with capacity.
-- For holdfast_worker. Locks: none.
create or replace function queues.notify_idle(queues text[])
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _waiting constant text[] := array(
    select distinct l.queue
    from queues.lane l
    cross join lateral (
      select from queues.ready r
      where r.lane_id = l.lane_id and r.run_at <= _now and r.run_at > _now - interval '250 milliseconds'
      order by r.run_at, r.task_id limit 1) young
    where l.queue = any (notify_idle.queues)
      and not exists (select from queues.paused_queue p where p.queue = l.queue));
begin
  if cardinality(_waiting) > 0 and queues.may_notify() then
    perform pg_notify('holdfast', q.queue)
    from unnest(_waiting) q(queue)
    where exists (
      select from queues.worker w where w.idle and (q.queue = any (w.queues) or cardinality(w.type_prefixes) > 0));
  end if;
  return cardinality(_waiting) > 0;
end
$$;

-- Records whether a worker waits for a wake-up, and returns whether it is registered.
-- For holdfast_worker. Locks: the worker's row.
create or replace function queues.mark_idle(worker_id text, idle boolean)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  update queues.worker w set idle = coalesce(mark_idle.idle, false) where w.worker_id = mark_idle.worker_id;
  return found;
end
$$;

-- Returns how long a worker may rest, and records that it is alive if it holds no tasks: then its heartbeats are not
-- needed. Returns what next_due and fleet_state return, and whether the worker is marked as idle: all that an idle
-- worker asks, in one transaction. A worker of an older release does not say whether it holds tasks.
-- For holdfast_worker. Locks: the worker's row, without waiting.
create or replace function queues.rest(
  worker_id text, holding boolean default null, queues text[] default null, type_prefixes text[] default null,
  memory_bytes bigint default null, finished bigint default null, per_second real default null,
  out due interval, out held boolean, out idle boolean, out registered boolean, out term_left interval,
  out sweep_in interval)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  -- A worker that holds tasks shows with its heartbeats that it is alive, and which of them have begun.
  update queues.worker w set last_heartbeat = queues.clock(),
    listed_at = case when holding is null then w.listed_at else queues.clock() end, in_flight = 0, running = 0,
    memory_bytes = coalesce(rest.memory_bytes, w.memory_bytes), finished = coalesce(rest.finished, w.finished),
    per_second = coalesce(rest.per_second, w.per_second)
  where w.worker_id in (
    select own.worker_id from queues.worker own
    where own.worker_id = rest.worker_id and not coalesce(holding, own.in_flight > 0) for no key update skip locked);
  idle := exists (select from queues.worker w where w.worker_id = rest.worker_id and w.idle);
  select f.registered, f.term_left, f.sweep_in into registered, term_left, sweep_in
  from queues.fleet_state(worker_id) f;
  select n.due, n.held into due, held from queues.next_due(rest.queues, type_prefixes) n;
end
$$;

-- Requests a notification on channel holdfast_done when a task ends, and returns its current status. The payload is the
-- task_id. A notification is only a hint: a waiting client also polls occasionally.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_operator. Locks: the waiter's row.
create or replace function queues.watch(task_id uuid, ttl interval default '1 minute')
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if not exists (select from queues.task t where t.task_id = watch.task_id and queues.may_read_all()) then
    perform queues.check_task_owner(task_id);
  end if;
  if ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  if not exists (select from queues.outcome o where o.task_id = watch.task_id) then
    insert into queues.waiter as w (task_id, until) values (task_id, _now + ttl)
    on conflict (task_id) do update set until = excluded.until
    where w.until < excluded.until - ttl / 2;
  end if;
  -- A separate statement, so that it sees an outcome that was committed meanwhile.
  return queues.status_now(task_id);
end
$$;

-- Does the same as watch for many tasks, and returns the current status of each that the session may see.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_operator. Locks: the waiters' rows in the
-- order of task_id.
create or replace function queues.watch_many(task_ids uuid[], ttl interval default '1 minute')
returns table (task_id uuid, status text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _seen uuid[];
begin
  if task_ids is null or cardinality(task_ids) > 10000 then
    raise exception using errcode = 'QF400', message = 'task_ids must be an array of at most 10000';
  elsif ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  _seen := array(
    select t.task_id from queues.task t
    where t.task_id = any (task_ids) and (_namespace is null or t.namespace = _namespace) order by t.task_id);
  insert into queues.waiter as w (task_id, until)
  select s.task_id, _now + ttl from unnest(_seen) s(task_id)
  where not exists (select from queues.outcome o where o.task_id = s.task_id)
  order by s.task_id
  on conflict (task_id) do update set until = excluded.until
  where w.until < excluded.until - ttl / 2;
  -- A separate statement, so that it sees outcomes that were committed meanwhile.
  return query
  select s.task_id, queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
    coalesce(r.run_at, d.parked_run_at), _now,
    (select true from queues.wait w where w.task_id = s.task_id limit 1))
  from unnest(_seen) s(task_id)
  left join queues.ready r on r.task_id = s.task_id
  left join queues.lease l on l.task_id = s.task_id
  left join queues.outcome o on o.task_id = s.task_id
  left join queues.deletion d on d.task_id = s.task_id;
end
$$;

-- Wakes idle workers for one task, if it is due within six seconds: an idle worker looks every five seconds.
create or replace function queues.wake_for(task_id uuid)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select queues.wake(t.queue, t.type, queues.clock())
  from queues.task t join queues.ready r on r.task_id = t.task_id
  where t.task_id = wake_for.task_id and r.run_at <= queues.clock() + interval '6 seconds'
$$;

-- Notifies idle workers of a task that is due soon, unless none of them serves it or a worker throttles the wake-ups
-- (hold_wakeups). Callers call it for tasks that are due within six seconds, because an idle worker looks every five.
-- NOTIFY takes a lock that all commits of the server share, and wakes every listener. A notification is only a hint: a
-- worker that misses it polls.
create or replace function queues.wake(queue text, type text, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (
      select from queues.worker w
      where w.idle and (wake.queue = any (w.queues)
        or exists (select from unnest(w.type_prefixes) prefix where starts_with(wake.type, prefix))))
    and not queues.are_wakeups_held(wake.queue, wake.now) and queues.may_notify()
  then
    perform pg_notify('holdfast', wake.queue);
  end if;
end
$$;

-- Returns whether a worker currently throttles the wake-ups of a queue. A row that lasts longer than allowed is left
-- over from before the clock was set back.
create or replace function queues.are_wakeups_held(queue text, now timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from queues.wakeup_throttle d
    where d.queue = are_wakeups_held.queue and d.kept_until > are_wakeups_held.now
      and d.kept_until <= are_wakeups_held.now + interval '1 second')
$$;

-- Wakes idle workers if a due task waits under a limit for the end of one of these tasks. Skips queues that the given
-- worker serves and is idle for: it looks again by itself. A notification is only a hint: a worker that misses it
-- polls.
-- Internal: called by notify_waiters.
create or replace function queues.wake_for_freed_limits(task_ids uuid[], worker_id text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if not exists (select from queues.worker w where w.idle) or not queues.may_notify() then
    return;
  end if;
  perform pg_notify('holdfast', behind.queue)
  from (
    select l.queue
    from (select distinct t.namespace, t.concurrency_key from queues.task t
      where t.task_id = any (task_ids) and t.concurrency_key is not null) ended
    -- Tasks of the key were set aside; bring_back has let some of them be claimed.
    join queues.lane l on l.concurrency_key = ended.concurrency_key and l.namespace = ended.namespace
      and l.concurrency_key > ''
    union
    select l.queue
    from (select distinct t.queue, t.type from queues.task t where t.task_id = any (task_ids)) ended
    cross join lateral (
      select l.queue from queues.lane l
      where exists (select from queues.task_limit k where k.subject = 'queue' and k.name = ended.queue)
        and l.queue = ended.queue
        and exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= _now) limit 1) l
    union
    select l.queue
    from (select distinct t.type from queues.task t where t.task_id = any (task_ids)) ended
    cross join lateral (
      select l.queue from queues.lane l
      where exists (select from queues.task_limit k where k.subject = 'type' and k.name = ended.type)
        and l.type = ended.type
        and exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= _now) limit 1) l) behind
  where exists (
      select from queues.worker w where w.idle and (behind.queue = any (w.queues) or cardinality(w.type_prefixes) > 0))
    and not exists (
      select from queues.worker w
      where w.idle and w.worker_id = wake_for_freed_limits.worker_id and behind.queue = any (w.queues))
    and not queues.are_wakeups_held(behind.queue, _now)
    and not exists (select from queues.paused_queue p where p.queue = behind.queue);
end
$$;
