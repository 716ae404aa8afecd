-- Why a task is not running now: each possible reason is looked for where it is stored.
-- Invariant: an explanation is derived from the rows that claims and sweeps decide on, and nothing is stored for it. A
-- session gets explanations of the tasks that it may see, and no others.
-- Lock order: none. No function is volatile, so all of them read in one snapshot.
-- At the same time: a task may be claimed or end while it is explained. Then the answer describes the moment at which
-- the statement began. Only what the server tells about sessions and their locks is newer than that snapshot, so a lock
-- may be gone whose effect is still described.

-- Explains why a task is not running now. What an error or a handler says is in a column of its own, because it may
-- quote values. Commands that would end the wait are in another one.
-- For holdfast_client (tasks of its namespace), holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.explain(task_id uuid)
returns table (why text, error text, advice text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _task record;
  _deadline text;
begin
  select s.*, d.deleted_by into _task
  from queues.task_status s left join queues.deletion d on d.task_id = s.task_id
  where s.task_id = explain.task_id;
  if not found then
    return query select format('There is no task %s: the id is wrong, retention has removed it, it belongs to another '
      'namespace, or the transaction that enqueues it is still open.', coalesce(task_id::text, 'null')), null::text,
      null::text;
    return;
  elsif _task.deleted_at is not null then
    return query select format('It was deleted at %s by %s%s. Restore it to let it continue.',
      date_trunc('second', _task.deleted_at), _task.deleted_by, coalesce(' because: ' || _task.delete_reason, '')),
      null::text, null::text;
    return;
  elsif _task.finished_at is not null then
    return query
    select concat_ws(' ', queues.explain_end(_task.status, date_trunc('second', _task.finished_at), _task.attempt,
        _task.max_attempts, case when _task.cancelled_by is not null then _task.reason end), e.why),
      nullif(concat_ws('; ', case when _task.status <> 'succeeded' and _task.cancelled_by is null
        then coalesce(_task.last_error, _task.reason) end, e.error), ''), null::text
    from queues.explain_events(_task.task_id, _now) e;
    return;
  end if;
  if _task.deadline is not null then
    _deadline := format('It has to end by %s.',
      date_trunc('second', queues.end_of_life(_task.task_id, _task.created_at, _task.deadline)));
  end if;
  if _task.claimed_at is not null then
    return query
    select concat_ws(' ', queues.explain_hold(_task.status, _task.worker_id, _task.lease_until, _task.attempt,
      _task.max_attempts, _now), s.why, _deadline, queues.explain_schedule(_task.task_id, _task.metadata)), s.error,
      null::text
    from queues.explain_steps(_task.task_id) s;
    return;
  end if;
  return query
  select concat_ws(' ', s.why, w.why, _deadline, queues.explain_schedule(_task.task_id, _task.metadata)),
    coalesce(s.error, w.error), case when _task.run_at > _now then queues.explain_signals(_task.task_id) end
  from queues.explain_steps(_task.task_id) s, queues.explain_wait(_task.task_id, _task.queue, _task.type,
    _task.run_at, _task.attempt, _task.max_attempts, _task.last_error, _now) w;
end
$$;

-- Explains how a task ended, with the reason of the person who cancelled it.
-- Internal: called by explain.
create or replace function queues.explain_end(
  status text, finished_at timestamptz, attempt integer, max_attempts integer, reason text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case status
    when 'succeeded' then format('It succeeded at %s, on attempt %s of %s.', finished_at, attempt, max_attempts)
    when 'failed' then format(
      'It failed at %s, on attempt %s of %s, and is not retried. Retry it once the cause is fixed.',
      finished_at, attempt, max_attempts)
    when 'dead_letter' then format('Its attempts were used up at %s (%s of %s). Retry it once the cause is fixed.',
      finished_at, attempt, max_attempts)
    else format('It was cancelled at %s%s. Retry it to let it run after all.', finished_at,
      coalesce(' because: ' || reason, '')) end
$$;

-- Explains which worker holds a task, and whether that worker still sends heartbeats.
-- Internal: called by explain.
create or replace function queues.explain_hold(
  status text, worker_id text, lease_until timestamptz, attempt integer, max_attempts integer, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('%s leased by worker %s until %s (attempt %s of %s)%s.',
    case when w.silent is null and lease_until >= now
      then case when status = 'running' then 'It is running,' else 'It is claimed and about to run,' end
      else case when status = 'running' then 'It was running at the last heartbeat,' else 'It is claimed,' end end,
    explain_hold.worker_id, date_trunc('second', lease_until), attempt, max_attempts,
    case when lease_until < now then '; the lease has ended, so the next sweep makes it ready again'
      when w.is_dead then format('; that worker has been silent for %s, so the leader will recover it', w.silent)
      when w.silent is not null
      then format('; that worker has been silent for %s: if it stays silent, other workers get the task at %s',
        w.silent, date_trunc('second', w.recovered_at))
      else '' end)
  from (select 1) one
  left join lateral (
    select queues.format_duration(extract(epoch from now - w.last_heartbeat)::double precision) as silent,
      w.last_heartbeat <= now - w.timeout as is_dead, least(lease_until, w.last_heartbeat + w.timeout) as recovered_at
    from queues.worker w
    where w.worker_id = explain_hold.worker_id
      and w.last_heartbeat <= now - least(w.timeout, 2 * w.heartbeat)) w on true
$$;

-- Explains which schedule skips its times because this task is unfinished; null if none does.
-- Internal: called by explain.
create or replace function queues.explain_schedule(task_id uuid, metadata jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('Until it has ended, schedule %s skips its times: %s so far.', s.name, (
    select count(*) from queues.schedule_firing f
    where f.schedule = s.name and f.namespace = s.namespace and f.decision = 'overlapped'
      and f.nominal_at > s.last_nominal_at))
  from queues.schedule s
  where s.name = metadata ->> 'schedule' and s.overlap = 'skip' and s.last_task_id = explain_schedule.task_id
$$;

-- Explains which steps of a task fail: those whose last try failed and that have not come to an end, at most three.
-- Nulls if there is none.
-- Internal: called by explain.
create or replace function queues.explain_steps(task_id uuid)
returns table (why text, error text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(format('Step %s failed (try %s%s); %s %s.', f.step, f.step_try,
      coalesce(' of ' || f.step_tries, ''),
      case when f.retry_at > queues.clock() then 'next try at' else 'its next try is due since' end,
      date_trunc('second', f.retry_at)), ' '
      order by f.retry_at, f.step),
    string_agg(left(split_part(f.message, e'\n', 1), 500), '; ' order by f.retry_at, f.step)
  from (
    select f.* from queues.failing_steps(explain_steps.task_id) f order by f.retry_at, f.step limit 3) f
$$;

-- Says how to send the signals that a suspended run waits for, at most three. Null if it waits for none.
-- Internal: called by explain.
create or replace function queues.explain_signals(task_id uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(format('Send it with: holdfast runs signal %s %s JSON', w.task_id, w.signal), e'\n'
    order by w.until, w.name)
  from (
    select w.* from queues.wait w where w.task_id = explain_signals.task_id and w.signal is not null
    order by w.until, w.name limit 3) w
$$;

-- Explains why a waiting task waits: its time, its queue, its workers, or the tasks before it.
-- Internal: called by explain.
create or replace function queues.explain_wait(
  task_id uuid, queue text, type text, run_at timestamptz, attempt integer, max_attempts integer, last_error text,
  now timestamptz)
returns table (why text, error text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _pause queues.paused_queue;
  _last queues.act;
  _live integer;
  _held text;
  _ahead integer;
begin
  if explain_wait.run_at > now then
    if exists (select from queues.wait w where w.task_id = explain_wait.task_id) then
      return query select queues.explain_waits(task_id), null::text;
      return;
    end if;
    select a.* into _last from queues.act a where a.task_id = explain_wait.task_id order by a.act_id desc limit 1;
    return query
    select case when _last.act = 'snoozed' and _last.reason is not null
      then format('Worker %s has postponed it until %s.', _last.worker_id, date_trunc('second', explain_wait.run_at))
      when attempt > 0
      then format('Attempt %s of %s failed; it is retried at %s.', attempt, max_attempts,
        date_trunc('second', explain_wait.run_at))
      else format('It is scheduled for %s.', date_trunc('second', explain_wait.run_at)) end,
      case when _last.act = 'snoozed' and _last.reason is not null then _last.reason
        when attempt > 0 then last_error end;
    return;
  end if;

  select p.* into _pause from queues.paused_queue p where p.queue = explain_wait.queue;
  if found then
    return query select format('Queue %s was paused at %s by %s%s. Resume it to let its tasks run.',
      _pause.queue, date_trunc('second', _pause.paused_at), _pause.paused_by,
      coalesce(' because: ' || _pause.reason, '')), null::text;
    return;
  end if;

  select count(*) into _live from queues.worker w
  where w.last_heartbeat > now - w.timeout
    and (explain_wait.queue = any (w.queues)
      or exists (select from unnest(w.type_prefixes) p where starts_with(explain_wait.type, p)));
  if _live = 0 then
    return query select format('It is due, but no live worker subscribes to queue %s or to a prefix of type %s. Start '
      'one.', explain_wait.queue, explain_wait.type), null::text;
    return;
  end if;

  _held := coalesce(queues.explain_limit(task_id, now), queues.explain_lock(task_id, now));
  if _held is not null then
    return query select _held, null::text;
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
  return query select format('It is due and waits for one of %s live worker%s; %s.%s', _live,
    case when _live > 1 then 's' else '' end,
    case _ahead when 0 then 'it is the next of its queue'
      when 10000 then '10000 or more of its queue come before it'
      else format('%s of its queue come%s before it', _ahead, case _ahead when 1 then 's' else '' end) end,
    coalesce(' ' || queues.explain_slowness(explain_wait.run_at, now), '')), null::text;
end
$$;

-- Explains what a suspended run, or a task that comes after others, waits for. Null if it waits only for its time, or
-- for the next try of a step, which explain_steps explains. Of the children of a step, it counts the first 2,000.
-- Internal: called by explain_wait.
create or replace function queues.explain_waits(task_id uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(said.sentence, ' ' order by said.until, said.name)
    || case when max(said.total) > 3 then format(' It waits for %s more.', max(said.total) - 3) else '' end
  from (
    select w.name, w.until, count(*) over () as total, row_number() over (order by w.until, w.name) as place, case
      when w.signal is not null then format(
        'It waits for the signal %s until %s.', w.signal, date_trunc('second', w.until))
      when w.policy in ('ended', 'succeeded') then format('It comes after task %s, which is %s.', w.on_task,
        coalesce(o.status, 'removed'))
      when w.on_task is not null then format('It waits in %s until %s for the children of that step; %s of %s have '
        'ended, and task %s is %s.', w.name, date_trunc('second', w.until),
        (select count(*) from queues.outcome e where e.task_id = any (array(
          select c.child_id from queues.child c
          where c.parent_id = w.task_id and c.generation = queues.current_generation(w.task_id)
            and c.step = w.name
          order by c.number limit 2000))),
        (select case when count(*) = 2000 then 'the first ' else '' end || count(*) from (
          select from queues.child c
          where c.parent_id = w.task_id and c.generation = queues.current_generation(w.task_id) and c.step = w.name
          limit 2000) c),
        w.on_task, coalesce(o.status, 'removed'))
      else format('It waits in %s until %s.', w.name, date_trunc('second', w.until)) end as sentence
    from queues.wait w
    left join lateral (select o.status from queues.task_status o where o.task_id = w.on_task offset 0) o on true
    where w.task_id = explain_waits.task_id
      and (w.signal is not null or w.on_task is not null or w.policy is not null
        or w.name not in (select f.step from queues.failing_steps(explain_waits.task_id) f))) said
  where said.place <= 3
$$;

-- Explains which limit, or open transaction that holds it, delays a waiting task; null if none does.
-- Internal.
create or replace function queues.explain_limit(task_id uuid, now timestamptz)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _limit record;
  _held text;
begin
  for _limit in
    select l.* from queues.task t
    cross join lateral queues.limits_of(t.queue, t.type, t.namespace, t.concurrency_key, explain_limit.now) l
    where t.task_id = explain_limit.task_id
    order by l.concurrency_key = '', l.subject, l.name
  loop
    if _limit.running >= _limit.max_running then
      return format('It is due, but %s, and that many run now. It starts when one of them ends.',
        queues.limit_in_words(_limit.subject, _limit.name, _limit.concurrency_key, _limit.max_running));
    elsif _limit.refills_in is not null then
      return format('It is due, but %s %s has used up its rate, which lets the next one start in %s.', _limit.subject,
        _limit.name, queues.format_duration(extract(epoch from _limit.refills_in)::double precision));
    end if;
    _held := coalesce(_held, queues.explain_limit_lock(_limit.lock, explain_limit.now));
  end loop;
  return 'It is due, but ' || _held || '.';
end
$$;

-- Returns a readable description of a limit.
create or replace function queues.limit_in_words(subject text, name text, concurrency_key text, max_running integer)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case concurrency_key when '' then format('of %s %s at most %s may run at once', subject, name, max_running)
    else format('of concurrency key %s of %s %s at most %s may run at once', to_json(concurrency_key), subject,
      name, max_running) end
$$;

-- Explains which open transaction keeps claims from counting a limit; null if none does.
-- Internal.
create or replace function queues.explain_limit_lock(lock integer, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('session %s of login %s has claimed under its limit, or changed it, in a transaction that has '
    'been open for %s; nothing else is claimed under it until that ends (end it in its application, or: select '
    'pg_terminate_backend(%s))',
    h.pid, h.login, queues.format_duration(h.seconds), h.pid)
  from queues.held_limit_locks(now) h where h.lock = explain_limit_lock.lock
  limit 1
$$;

-- Explains which open transaction has locked a waiting task, so that claims skip it; null if none has.
-- Internal: called by explain.
create or replace function queues.explain_lock(task_id uuid, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('It is due, but session %s of login %s has changed or locked it in a transaction that has been open '
    'for %s. Claims skip it until that ends: end it in its application, or: select pg_terminate_backend(%s)',
    a.pid, a.usename, queues.format_duration(coalesce(extract(epoch from now - a.xact_start)::double precision,
      queues.snapshot_age(age(r.xmax)::bigint, now))), a.pid)
  from queues.ready r
  join pg_locks l on l.locktype = 'transactionid' and l.transactionid = r.xmax and l.granted
  join pg_stat_activity a on a.pid = l.pid
  where r.task_id = explain_lock.task_id and r.xmax <> '0'::xid
  limit 1
$$;

-- Explains what slows claims down if a task has been due for a minute and dead rows cannot be removed; else null.
-- Internal: called by explain.
create or replace function queues.explain_slowness(run_at timestamptz, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('Claims may be slow: %s %s%s has held a snapshot for %s, which keeps %s dead rows from being '
    'removed.', s.kind, s.subject, coalesce(' of ' || s.login, ''), queues.format_duration(s.seconds), t.n_dead_tup)
  from pg_stat_all_tables t
  cross join lateral (select s.* from queues.oldest_snapshots(now) s where s.seconds >= 300 limit 1) s
  where run_at < now - interval '1 minute' and t.relid = 'queues.ready'::regclass and t.n_dead_tup >= 100000
$$;

-- Returns what holds back due tasks of these queues: limits, rates and open transactions. Returns one row for each of
-- them, with the oldest waiting task, and one row without a kind for tasks that nothing holds back. Concurrency keys of
-- one type count together. Reads each lane and each running task once, however many queues there are.
-- Internal: called by health.
create or replace function queues.explain_held(queues text[], now timestamptz)
returns table (
  queue text, kind text, subject text, name text, lanes integer, oldest_due timestamptz, words text)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with due as materialized (
    select l.lane_id, l.queue, l.type, l.namespace, l.concurrency_key, first.run_at
    from queues.lane l
    cross join lateral (
      select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where l.queue = any (explain_held.queues) and first.run_at <= explain_held.now),
  -- Tasks in the lane of a key wait for the end of a running task of that key.
  by_key as (
    select d.queue, 'per_key' as kind,
      case when t.per_key is null and q.per_key is not null then 'queue' else 'type' end as subject,
      d.type, d.concurrency_key, coalesce(t.per_key, q.per_key, 1) as max_running, d.run_at
    from due d
    left join queues.task_limit t on t.subject = 'type' and t.name = d.type
    left join queues.task_limit q on q.subject = 'queue' and q.name = d.queue
    where d.concurrency_key > '' and exists (
      select from queues.lease e where e.concurrency_key = queues.qualified_key(d.namespace, d.concurrency_key))),
  running as materialized (
    select l.queue, l.type, count(*) as tasks from queues.lease e join queues.lane l on l.lane_id = e.lane_id
    where exists (select from queues.task_limit) and explain_held.queues <> '{}' group by 1, 2),
  limits as materialized (
    select t.subject, t.name, t.max_running, (
        select coalesce(sum(r.tasks), 0) from running r
        where case t.subject when 'queue' then r.queue else r.type end = t.name) as running,
      case when t.rate is not null and queues.tokens_at(t, explain_held.now) < 1
        then (1 - queues.tokens_at(t, explain_held.now)) * t.per / t.rate + interval '1 millisecond' end as refills_in,
      queues.explain_limit_lock(queues.limit_lock_of(t.subject, t.name), explain_held.now) as held
    from queues.task_limit t where t.max_running is not null or t.rate is not null),
  held as (
    select distinct on (d.lane_id) d.queue, case when l.running >= l.max_running then 'max_running'
        when l.refills_in is not null then 'rate' when l.held is not null then 'lock' end as kind,
      l.subject, l.name, null as concurrency_key, l.max_running, d.run_at, l.refills_in, l.held
    from due d
    cross join lateral (values ('queue', d.queue), ('type', d.type)) s(subject, name)
    left join limits l on l.subject = s.subject and l.name = s.name
    where coalesce(d.concurrency_key, '') = ''
    order by d.lane_id, coalesce(l.running >= l.max_running, false) desc, l.refills_in desc nulls last,
      l.held nulls last),
  cause as (
    select h.queue, h.kind, case when h.kind is not null then h.subject end as subject,
      case when h.kind is not null then h.name end as name, count(*)::integer as lanes, min(h.run_at) as oldest_due,
      count(distinct h.concurrency_key) as keys, min(h.concurrency_key) as one_key, max(h.max_running) as max_running,
      max(h.refills_in) as refills_in, min(h.held) as held
    from (
      select * from held
      union all
      select k.queue, k.kind, k.subject, case k.subject when 'queue' then k.queue else k.type end, k.concurrency_key,
        k.max_running, k.run_at, null, null from by_key k) h
    group by 1, 2, 3, 4)
  select c.queue, c.kind, c.subject, c.name, c.lanes, c.oldest_due,
    case c.kind
      when 'per_key' then case c.keys when 1
        then queues.limit_in_words(c.subject, c.name, c.one_key, c.max_running) || ', and that many run now'
        else format('%s concurrency keys of %s %s, such as %s, run as many tasks at once as they may (%s)', c.keys,
          c.subject, c.name, to_json(c.one_key), c.max_running) end
      when 'max_running' then queues.limit_in_words(c.subject, c.name, '', c.max_running) || ', and that many run now'
      when 'rate' then format('%s %s has used up its rate, which lets the next task start in %s', c.subject, c.name,
        queues.format_duration(extract(epoch from c.refills_in)::double precision))
      when 'lock' then c.held end
  from cause c order by c.queue, c.oldest_due
$$;
