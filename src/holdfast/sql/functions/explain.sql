-- Why a task is not running now: each possible reason is looked for where it is stored.
-- Invariant: an explanation is derived from the rows that claims and sweeps decide on, and nothing is stored for it. A
-- session gets explanations of the tasks that it may see, and no others. A reason is a code with its facts: names,
-- numbers and times. What an error or a handler says may quote values, so it is in the column error and nowhere else.
-- The words are in Python, one text for each code that has the alias code here.
-- Lock order: none. No function is volatile, so all of them read in one snapshot.
-- At the same time: a task may be claimed or end while it is explained. Then the answer describes the moment at which
-- the statement began. Only what the server tells about sessions and their locks is newer than that snapshot, so a lock
-- may be gone whose effect is still described.

-- Returns the reasons why a task is not running now, in the order in which they are read: a code, its facts, and what
-- an error or a handler says about it.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.explain(task_id uuid)
returns table (code text, facts jsonb, error text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _task record;
begin
  select s.*, d.deleted_by into _task
  from queues.task_status s left join queues.deletion d on d.task_id = s.task_id
  where s.task_id = explain.task_id;
  if not found then
    return query select 'unknown' as code, jsonb_build_object('task_id', explain.task_id), null::text;
    return;
  elsif _task.deleted_at is not null then
    return query select 'deleted' as code, jsonb_build_object('at', _task.deleted_at, 'by', _task.deleted_by,
      'reason', _task.delete_reason), null::text;
    return;
  elsif _task.finished_at is not null then
    return query
    select ended.code, jsonb_build_object('at', _task.finished_at, 'attempt', _task.attempt,
        'max_attempts', _task.max_attempts, 'reason', case when _task.cancelled_by is not null then _task.reason end),
      case when ended.code <> 'succeeded' and _task.cancelled_by is null
        then coalesce(_task.last_error, _task.reason) end
    from (values ('succeeded'), ('failed'), ('dead_letter'), ('cancelled')) ended(code)
    where ended.code = _task.status;
    return query select e.* from queues.explain_events(_task.task_id, _now) e;
    return;
  end if;
  if _task.claimed_at is not null then
    return query
    select h.* from queues.explain_hold(_task.status, _task.worker_id, _task.lease_until, _task.attempt,
      _task.max_attempts, _now) h;
  end if;
  return query
  -- The steps whose last try failed and that have not come to an end.
  select case when f.retry_at > _now then 'step_retried' else 'step_due' end as code,
    jsonb_build_object('step', f.step, 'tried', f.step_try, 'tries', f.step_tries, 'retry_at', f.retry_at),
    left(split_part(f.message, e'\n', 1), 500)
  from queues.failing_steps(_task.task_id) f order by f.retry_at, f.step limit 3;
  if _task.claimed_at is null then
    return query
    select w.* from queues.explain_wait(_task.task_id, _task.queue, _task.type, _task.run_at, _task.attempt,
      _task.max_attempts, _task.last_error, _now) w;
  end if;
  if _task.deadline is not null then
    return query
    select 'deadline' as code, jsonb_build_object('at', queues.end_of_life(_task.task_id, _task.created_at,
      _task.deadline)), null::text;
  end if;
  return query
  -- The schedule that skips its times because this task is unfinished.
  select 'schedule_waits' as code, jsonb_build_object('schedule', s.name, 'skipped', (
    select count(*) from queues.schedule_firing f
    where f.schedule = s.name and f.namespace = s.namespace and f.decision = 'overlapped'
      and f.nominal_at > s.last_nominal_at)), null::text
  from queues.schedule s
  where s.name = _task.metadata ->> 'schedule' and s.overlap = 'skip' and s.last_task_id = _task.task_id;
end
$$;

-- Explains which worker holds a task, and whether that worker still sends heartbeats.
create or replace function queues.explain_hold(
  status text, worker_id text, lease_until timestamptz, attempt integer, max_attempts integer, now timestamptz)
returns table (code text, facts jsonb, error text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _silent record;
  _is_heard boolean;
begin
  select extract(epoch from explain_hold.now - w.last_heartbeat) as seconds,
    w.last_heartbeat <= explain_hold.now - w.timeout as is_dead,
    least(explain_hold.lease_until, w.last_heartbeat + w.timeout) as recovered_at
  into _silent from queues.worker w
  where w.worker_id = explain_hold.worker_id
    and w.last_heartbeat <= explain_hold.now - least(w.timeout, 2 * w.heartbeat);
  _is_heard := _silent.seconds is null and lease_until >= now;
  return query
  select case when status = 'running' and _is_heard then 'running' when _is_heard then 'claimed'
      when status = 'running' then 'running_unheard' else 'claimed_unheard' end as code,
    jsonb_build_object('worker_id', worker_id, 'lease_until', lease_until, 'attempt', attempt,
      'max_attempts', max_attempts), null::text;
  if not _is_heard then
    return query
    select case when lease_until < now then 'lease_ended' when _silent.is_dead then 'worker_dead'
        else 'worker_silent' end as code,
      jsonb_build_object('silent', _silent.seconds, 'recovered_at', _silent.recovered_at), null::text;
  end if;
end
$$;

-- Explains why a waiting task waits: its time, its queue, its workers, or the tasks before it.
create or replace function queues.explain_wait(
  task_id uuid, queue text, type text, run_at timestamptz, attempt integer, max_attempts integer, last_error text,
  now timestamptz)
returns table (code text, facts jsonb, error text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _last queues.act;
  _live integer;
  _ahead integer;
begin
  if explain_wait.run_at > now then
    if exists (select from queues.wait w where w.task_id = explain_wait.task_id) then
      return query select w.* from queues.explain_waits(explain_wait.task_id) w;
      return;
    end if;
    select a.* into _last from queues.act a where a.task_id = explain_wait.task_id order by a.act_id desc limit 1;
    return query
    select case when _last.act = 'snoozed' and _last.reason is not null then 'postponed'
        when attempt > 0 then 'retried' else 'scheduled' end as code,
      jsonb_build_object('at', explain_wait.run_at, 'attempt', attempt, 'max_attempts', max_attempts,
        'worker_id', _last.worker_id),
      case when _last.act = 'snoozed' and _last.reason is not null then _last.reason
        when attempt > 0 then last_error end;
    return;
  end if;

  return query
  select 'queue_paused' as code, jsonb_build_object('queue', p.queue, 'at', p.paused_at, 'by', p.paused_by,
    'reason', p.reason), null::text
  from queues.paused_queue p where p.queue = explain_wait.queue;
  if found then
    return;
  end if;

  select count(*) into _live from queues.worker w
  where w.last_heartbeat > now - w.timeout
    and (explain_wait.queue = any (w.queues)
      or exists (select from unnest(w.type_prefixes) p where starts_with(explain_wait.type, p)));
  if _live = 0 then
    return query select 'no_worker' as code, jsonb_build_object('queue', explain_wait.queue,
      'type', explain_wait.type), null::text;
    return;
  end if;

  return query select l.* from queues.explain_limit(explain_wait.task_id, now) l;
  if found then
    return;
  end if;
  return query select l.* from queues.explain_lock(explain_wait.task_id, now) l;
  if found then
    return;
  end if;

  select count(*) into _ahead from (
    select from queues.ready mine
    join queues.lane my_lane on my_lane.lane_id = mine.lane_id
    join queues.lane other on other.queue = my_lane.queue and other.priority >= my_lane.priority
    join queues.ready ahead on ahead.lane_id = other.lane_id and ahead.run_at <= now
    where mine.task_id = explain_wait.task_id
      and (other.priority > my_lane.priority or (ahead.run_at, ahead.task_id) < (mine.run_at, mine.task_id))
    limit 10000) those;
  return query
  select case _ahead when 0 then 'next_of_queue' else 'behind_others' end as code,
    jsonb_build_object('workers', _live, 'ahead', _ahead, 'counted_to', 10000), null::text;
  return query select s.* from queues.explain_slowness(explain_wait.run_at, now) s;
end
$$;

-- Explains what a suspended run, or a task that comes after others, waits for: three waits, and how many more there
-- are. Nothing if it waits only for its time, or for the next try of a step, which explain tells. Of the
-- children of a step, it counts the first 2,000.
create or replace function queues.explain_waits(task_id uuid)
returns table (code text, facts jsonb, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select k.code, case k.code
      when 'waits_for_more' then jsonb_build_object('more', w.total - 3)
      when 'waits_for_signal'
        then jsonb_build_object('task_id', w.task_id, 'signal', w.signal, 'until', w.until)
      when 'comes_after' then jsonb_build_object('task_id', w.on_task, 'status', coalesce(o.status, 'removed'))
      when 'waits_until' then jsonb_build_object('name', w.name, 'until', w.until)
      else jsonb_build_object('step', w.name, 'until', w.until, 'task_id', w.on_task, 'counted_to', 2000,
        'status', coalesce(o.status, 'removed'), 'ended', (
          select count(*) from queues.outcome e where e.task_id = any (array(
            select c.child_id from queues.child c
            where c.parent_id = w.task_id and c.generation = queues.current_generation(w.task_id)
              and c.step = w.name
            order by c.number limit 2000))),
        'children', (
          select count(*) from (
            select from queues.child c
            where c.parent_id = w.task_id and c.generation = queues.current_generation(w.task_id)
              and c.step = w.name
            limit 2000) c)) end,
    null::text
  from (
    select w.*, count(*) over () as total, row_number() over (order by w.until, w.name) as place
    from queues.wait w
    where w.task_id = explain_waits.task_id
      and (w.signal is not null or w.on_task is not null or w.policy is not null
        or w.name not in (select f.step from queues.failing_steps(explain_waits.task_id) f))) w
  cross join lateral (
    select case when w.place > 3 then 'waits_for_more'
      when w.signal is not null then 'waits_for_signal'
      when w.policy in ('ended', 'succeeded') then 'comes_after'
      when w.on_task is not null then 'waits_for_children'
      else 'waits_until' end as code) k
  left join lateral (select o.status from queues.task_status o where o.task_id = w.on_task offset 0) o on true
  where w.place <= 4
  order by w.place
$$;

-- Explains which limit, or open transaction that holds it, delays a waiting task.
create or replace function queues.explain_limit(task_id uuid, now timestamptz)
returns table (code text, facts jsonb, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select k.code, case k.code
      when 'limit_locked' then jsonb_build_object('pid', held.pid, 'login', held.login, 'seconds', held.seconds)
      when 'rate_used_up' then jsonb_build_object('subject', l.subject, 'name', l.name,
        'seconds', extract(epoch from l.refills_in))
      else jsonb_build_object('subject', l.subject, 'name', l.name, 'max_running', l.max_running,
        'concurrency_key', nullif(l.concurrency_key, '')) end,
    null::text
  from queues.task t
  cross join lateral queues.limits_of(t.queue, t.type, t.namespace, t.concurrency_key, explain_limit.now) l
  left join lateral (
    select h.* from queues.held_limit_locks(explain_limit.now) h where h.lock = l.lock limit 1) held on true
  cross join lateral (
    select case when l.running >= l.max_running and l.concurrency_key = '' then 'limit_reached'
      when l.running >= l.max_running then 'key_limit_reached'
      when l.refills_in is not null then 'rate_used_up'
      when held.pid is not null then 'limit_locked' end as code) k
  where t.task_id = explain_limit.task_id and k.code is not null
  order by k.code = 'limit_locked', l.concurrency_key = '', l.subject, l.name
  limit 1
$$;

-- Explains which open transaction has locked a waiting task, so that claims skip it.
create or replace function queues.explain_lock(task_id uuid, now timestamptz)
returns table (code text, facts jsonb, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'task_locked' as code, jsonb_build_object('pid', a.pid, 'login', a.usename, 'seconds', coalesce(
    extract(epoch from now - a.xact_start)::double precision, queues.snapshot_age(age(r.xmax)::bigint, now))),
    null::text
  from queues.ready r
  join pg_locks l on l.locktype = 'transactionid' and l.transactionid = r.xmax and l.granted
  join pg_stat_activity a on a.pid = l.pid
  where r.task_id = explain_lock.task_id and r.xmax <> '0'::xid
  limit 1
$$;

-- Explains what slows claims down if a task has been due for a minute and dead rows cannot be removed.
create or replace function queues.explain_slowness(run_at timestamptz, now timestamptz)
returns table (code text, facts jsonb, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'claims_slow' as code, jsonb_build_object('kind', s.kind, 'name', s.name, 'login', s.login,
    'seconds', s.seconds, 'dead_rows', t.n_dead_tup), null::text
  from pg_stat_all_tables t
  cross join lateral (select s.* from queues.oldest_snapshots(now) s where s.seconds >= 300 limit 1) s
  where run_at < now - interval '1 minute' and t.relid = 'queues.ready'::regclass and t.n_dead_tup >= 100000
$$;

-- Returns what holds back due tasks of these queues: limits, rates and open transactions, as codes with facts. Returns
-- one row for each of them, with the oldest waiting task, and one row without a code for tasks that nothing holds back.
-- Concurrency keys of one type count together. Reads each lane and each running task once, however many queues there
-- are.
-- Internal: called by health.
create or replace function queues.held_back(queues text[], now timestamptz)
returns table (queue text, code text, facts jsonb, lanes integer, oldest_due timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with due as materialized (
    select l.lane_id, l.queue, l.type, l.namespace, l.concurrency_key, first.run_at
    from queues.lane l
    cross join lateral (
      select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where l.queue = any (held_back.queues) and first.run_at <= held_back.now),
  -- Tasks in the lane of a key wait for the end of a running task of that key.
  by_key as (
    select d.queue, 'key_limit_reached' as code,
      case when t.per_key is null and q.per_key is not null then 'queue' else 'type' end as subject,
      d.type, d.concurrency_key, coalesce(t.per_key, q.per_key, 1) as max_running, d.run_at
    from due d
    left join queues.task_limit t on t.subject = 'type' and t.name = d.type
    left join queues.task_limit q on q.subject = 'queue' and q.name = d.queue
    where d.concurrency_key > '' and exists (
      select from queues.lease e where e.concurrency_key = queues.qualified_key(d.namespace, d.concurrency_key))),
  running as materialized (
    select l.queue, l.type, count(*) as tasks from queues.lease e join queues.lane l on l.lane_id = e.lane_id
    where exists (select from queues.task_limit) and held_back.queues <> '{}' group by 1, 2),
  limits as materialized (
    select t.subject, t.name, t.max_running, (
        select coalesce(sum(r.tasks), 0) from running r
        where case t.subject when 'queue' then r.queue else r.type end = t.name) as running,
      case when t.rate is not null and queues.tokens_at(t, held_back.now) < 1
        then (1 - queues.tokens_at(t, held_back.now)) * t.per / t.rate + interval '1 millisecond' end as refills_in,
      (select jsonb_build_object('pid', h.pid, 'login', h.login, 'seconds', h.seconds)
        from queues.held_limit_locks(held_back.now) h
        where h.lock = queues.limit_lock_of(t.subject, t.name) limit 1) as held
    from queues.task_limit t where t.max_running is not null or t.rate is not null),
  held as (
    select distinct on (d.lane_id) d.queue, case when l.running >= l.max_running then 'limit_reached'
        when l.refills_in is not null then 'rate_used_up' when l.held is not null then 'limit_locked' end as code,
      l.subject, l.name, null as concurrency_key, l.max_running, d.run_at, l.refills_in, l.held
    from due d
    cross join lateral (values ('queue', d.queue), ('type', d.type)) s(subject, name)
    left join limits l on l.subject = s.subject and l.name = s.name
    where coalesce(d.concurrency_key, '') = ''
    order by d.lane_id, coalesce(l.running >= l.max_running, false) desc, l.refills_in desc nulls last,
      l.held nulls last),
  cause as (
    select h.queue, h.code, case when h.code is not null then h.subject end as subject,
      case when h.code is not null then h.name end as name, count(*)::integer as lanes, min(h.run_at) as oldest_due,
      count(distinct h.concurrency_key) as keys, min(h.concurrency_key) as one_key, max(h.max_running) as max_running,
      max(h.refills_in) as refills_in, (array_agg(h.held))[1] as held
    from (
      select * from held
      union all
      select k.queue, k.code, k.subject, case k.subject when 'queue' then k.queue else k.type end, k.concurrency_key,
        k.max_running, k.run_at, null, null from by_key k) h
    group by 1, 2, 3, 4)
  select c.queue, k.code, jsonb_strip_nulls(jsonb_build_object('code', k.code, 'subject', c.subject, 'name', c.name,
      'max_running', c.max_running, 'concurrency_key', c.one_key, 'keys', nullif(c.keys, 0),
      'seconds', extract(epoch from c.refills_in))) || coalesce(c.held, '{}'), c.lanes, c.oldest_due
  from cause c
  cross join lateral (
    select case when c.keys > 1 then 'key_limits_reached' else c.code end as code) k
  order by c.queue, c.oldest_due
$$;
