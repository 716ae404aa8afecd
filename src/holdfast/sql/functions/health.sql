-- The health of the installation: one function per area looks for what is wrong, and health puts the lines together.
-- Invariant: a check only reads, and how much depends neither on how many tasks wait nor on how many have ended: it has
-- to answer when queues are long and workers are gone. Each line names what it judges. It says what it found by a code
-- with facts: names and numbers. What an error says may quote values, so it is in the column error and nowhere else.
-- The words are in Python, one text for each code that has the alias code here.
-- Lock order: none. No function is volatile, so all of them read in one snapshot.
-- At the same time: everything may change while the checks read. The lines agree with each other, because of the
-- snapshot; only statistics, locks and sessions of the server are those of the moment at which they are read.

-- Returns how many tasks were enqueued and ended, and how many attempts failed, since the statistics began. Two calls
-- give rates. Costs almost nothing.
-- For holdfast_reader and holdfast_operator. Locks: none.
create or replace function queues.count_activity()
returns table (counted_at timestamptz, enqueued bigint, finished bigint, errors bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select queues.clock(), queues.count_inserted('queues.task'), queues.count_inserted('queues.outcome'),
    queues.count_inserted('queues.error')
$$;

-- Returns one row per health check, the worst first: its level, a number, what was found as a code with facts, and the
-- latest error. The level is green, amber or red. The cost depends neither on finished tasks nor on backlogs.
-- For holdfast_reader and holdfast_operator. Locks: none.
create or replace function queues.health()
returns setof queues.health_line
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now constant timestamptz := queues.clock();
begin
  return query
  select h.* from (
    select q.* from queues.health_of_queues(_now) q
    union all select t.* from queues.health_of_tasks(_now) t
    union all select f.* from queues.health_of_steps(_now) f
    union all select r.* from queues.health_of_runs(_now) r
    union all select w.* from queues.health_of_workers(_now) w
    union all select s.* from queues.health_of_schedules(_now) s
    union all select o.* from queues.health_of_outbox(_now) o
    union all select p.* from queues.health_of_processes(_now) p
    union all select d.* from queues.health_of_retention(_now) d
    union all select g.* from queues.health_of_roles() g
    union all select v.* from queues.health_of_server(_now) v) h
  order by array_position(array['red', 'amber', 'green'], h.level), h.check_name, h.value desc nulls last, h.subject;
end
$$;

-- Checks tasks that wait too long, and why no worker takes them, with one index lookup per lane.
create or replace function queues.health_of_queues(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with due as materialized (
    select l.queue, first.type, first.run_at,
      exists (select from queues.paused_queue p where p.queue = l.queue) as paused,
      exists (
        select from queues.worker w
        where w.last_heartbeat > now - w.timeout
          and (l.queue = any (w.queues) or exists (
            select from unnest(w.type_prefixes) prefix where starts_with(first.type, prefix)))) as served
    from queues.lane l
    cross join lateral (
      select r.run_at, case when l.type > '' then l.type
        else (select t.type from queues.task t where t.task_id = r.task_id) end as type
      from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where first.run_at <= now),
  waiting as materialized (
    select d.queue, extract(epoch from now - min(d.run_at))::double precision as seconds, bool_and(d.served) as served,
      min(d.type) filter (where not d.served) as unserved
    from due d where not d.paused group by d.queue),
  held as materialized (
    select h.* from queues.held_back(array(select w.queue from waiting w where w.seconds >= 60), now) h)
  -- If nothing holds the oldest task back, more workers help. If only limits do, which somebody has set, it is amber.
  select 'oldest_due', case when w.served and h.limited then queues.level_of(w.seconds, 60, 'infinity')
      else queues.level_of(w.seconds, 60, 600) end, w.queue, w.seconds,
    case when h.whole then 'all_held_back' when h.queue is not null then 'oldest_held_back' else 'due' end as code,
    jsonb_build_object('causes', h.causes), null
  from waiting w
  left join lateral (
    select h.queue, bool_and(h.code is not null) as whole,
      bool_and(coalesce(h.code, 'none') not in ('none', 'limit_locked')) as limited,
      to_jsonb((array_agg(h.facts order by h.oldest_due) filter (where h.code is not null))[1:10]) as causes
    from held h where h.queue = w.queue
    group by h.queue having (array_agg(h.code order by h.oldest_due))[1] is not null) h on true
  union all
  select 'unserved', queues.level_of(w.seconds, 10, 60), w.queue, w.seconds, 'unserved' as code,
    jsonb_build_object('type', w.unserved), null
  from waiting w where not w.served
  order by 4 desc limit 200;

  return query
  select 'lanes', queues.level_of(count(*), 10000, 100000), null, count(*)::double precision,
    case when count(*) >= 10000 and 2 * count(l.leaving) > count(*) then 'lanes_stay' else 'lanes' end as code,
    jsonb_build_object('used', count(*) filter (where l.leaving is null), 'leaving', nullif(count(l.leaving), 0)), null
  from queues.lane l where coalesce(l.concurrency_key, '') = '';

  return query
  select 'held_limit', queues.level_of(h.seconds, 10, 60), h.pid::text, h.seconds, 'held_limit' as code,
    jsonb_build_object('login', h.login), null
  from (
    select h.pid, h.login, max(h.seconds) as seconds from queues.held_limit_locks(now) h
    where h.seconds >= 10 group by h.pid, h.login) h
  order by h.seconds desc limit 20;

  return query
  select 'paused_queue', 'amber', p.queue, extract(epoch from now - p.paused_at)::double precision,
    'paused_queue' as code, jsonb_build_object('by', p.paused_by, 'reason', p.reason), null
  from queues.paused_queue p order by p.paused_at limit 100;
end
$$;

-- Returns green, amber or red, by two thresholds.
create or replace function queues.level_of(value double precision, amber double precision, red double precision)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select case when value >= red then 'red' when value >= amber then 'amber' else 'green' end $$;

-- Checks how long the newest tasks waited, the failure rate of each type, and runs whose mailbox is nearly full. Reads
-- a thousand rows of each kind, 200 tasks and ten minutes of reports per failing type, and the signals of 20 runs.
create or replace function queues.health_of_tasks(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with newest as materialized (
    select o.task_id, o.claimed_at from (
      select o.task_id, o.claimed_at, o.finished_at, o.attempt from queues.outcome o order by o.task_id desc
        limit 1000) o
    where o.attempt = 1 and o.claimed_at is not null and o.finished_at > now - interval '5 minutes'),
  -- Snoozed, released and rescheduled tasks were not due when they were enqueued.
  waited as materialized (
    select t.queue, extract(epoch from n.claimed_at - t.run_at)::double precision as seconds
    from newest n
    cross join lateral (select t.queue, t.run_at from queues.task t where t.task_id = n.task_id offset 0) t
    where not exists (select from queues.act a where a.task_id = n.task_id)),
  delay as (
    select w.queue, count(*) as tasks, percentile_cont(0.5) within group (order by w.seconds) as p50,
      percentile_cont(0.99) within group (order by w.seconds) as p99
    from waited w group by w.queue),
  -- A limit or a pause makes tasks wait on purpose, and more workers would not help.
  explained as (
    select d.*, exists (
        select from queues.act a where a.queue = d.queue and a.act = 'resumed'
          and a.occurred_at > now - interval '10 minutes') as resumed,
      exists (
        select from queues.task_limit l where l.subject = 'queue' and l.name = d.queue
          or l.subject = 'type' and l.name in (select n.type from queues.lane n where n.queue = d.queue)) as limited
    from delay d)
  select v.check_name, v.level, d.queue, v.value,
    case when d.resumed then 'delay_after_pause' when d.limited then 'delay_under_limit' else 'delay' end as code,
    jsonb_build_object('tasks', d.tasks, 'p50', d.p50, 'p99', d.p99), null
  from explained d
  cross join lateral (values
    ('delay_p50', 'green', d.p50),
    ('delay_p99', case when d.resumed then 'green' when d.limited then queues.level_of(d.p99, 60, 'infinity')
      else queues.level_of(d.p99, 60, 600) end, d.p99)) v(check_name, level, value)
  order by d.p99 desc limit 200;

  return query
  with newest as materialized (
    select e.task_id, e.retry_at, e.message, e.error_id, e.step from (
      select e.task_id, e.retry_at, e.message, e.error_id, e.occurred_at, e.step from queues.error e
      order by e.error_id desc limit 1000) e
    where e.occurred_at > now - interval '10 minutes'),
  failing as materialized (
    select t.type, count(*) as errors, count(n.step) as tries, count(*) filter (where n.retry_at is null) as ended,
      (array_agg(n.message order by n.error_id desc))[1] as last_message,
      (array_agg(n.step order by n.error_id desc) filter (where n.step is not null))[1] as last_step,
      (array_agg(n.task_id order by n.error_id desc))[1] as last_id, array_agg(distinct t.queue) as queues
    from newest n
    cross join lateral (select t.type, t.queue from queues.task t where t.task_id = n.task_id offset 0) t
    group by t.type order by 4 desc, 2 desc limit 50),
  recent as materialized (
    select t.type, o.status
    from (select o.task_id, o.status, o.finished_at from queues.outcome o order by o.task_id desc limit 2000) o
    cross join lateral (select t.type from queues.task t where t.task_id = o.task_id offset 0) t
    where o.finished_at > now - interval '10 minutes'),
  -- A rate, not a count: the share of failures among what workers have reported, or among the recently ended of the
  -- newest 2,000 tasks, whichever is more. If neither has the type, only its failures are known, which is not red.
  rated as (
    select f.type, f.errors, f.tries, f.last_message, f.last_step, f.last_id,
      greatest(reported.total, sample.total) > 0 as known,
      case when reported.total > sample.total then reported.total else greatest(sample.total, f.ended) end as total,
      case when reported.total > sample.total then reported.failed when sample.total = 0 then f.ended
        else sample.failed end as failed
    from failing f
    cross join lateral (
      select count(*) as total, count(*) filter (where r.status in ('failed', 'dead_letter')) as failed
      from recent r where r.type = f.type) sample
    cross join lateral (
      select coalesce(sum(a.succeeded + a.failed + a.cancelled), 0)::bigint as total,
        coalesce(sum(a.failed), 0)::bigint as failed
      from unnest(f.queues) q(queue)
      join queues.activity a on a.queue = q.queue and a.type = f.type
        and a.at > now - interval '10 minutes') reported)
  select 'failing_type', case
      when r.known and r.failed >= 5 and r.failed * 2 >= r.total then 'red'
      when r.failed > 0 and r.failed * 20 >= r.total or r.errors >= 5 and r.errors > r.total - r.failed then 'amber'
      else 'green' end,
    r.type, case when r.total = 0 then 0 else r.failed::double precision / r.total end,
    case when r.total = 0 then 'no_task_ended' when r.failed = 0 then 'attempts_failed'
      when r.known then 'tasks_failed' else 'tasks_failed_of_unknown' end as code,
    jsonb_build_object('failed', r.failed, 'total', r.total, 'attempts', nullif(r.errors - r.tries, 0),
      'tries', nullif(r.tries, 0), 'step', r.last_step, 'task_id', r.last_id),
    left(r.last_message, 200)
  from rated r order by r.failed desc, r.errors desc;

  return query
  with suspect as materialized (
    select s.task_id from (select s.task_id from queues.signal s order by s.signal_id desc limit 1000) s
    where not exists (select from queues.outcome o where o.task_id = s.task_id)
    group by s.task_id order by count(*) desc limit 20),
  most as materialized (
    select max(s.value) filter (where s.name = 'max_signals') as count,
      max(s.value) filter (where s.name = 'max_signal_bytes') as bytes from queues.setting s)
  select 'full_mailbox', 'amber', u.task_id::text, f.filled, 'full_mailbox' as code,
    jsonb_build_object('type', t.type, 'signals', u.count, 'bytes', u.bytes, 'max_signals', m.count,
      'max_bytes', m.bytes), null
  from most m
  cross join lateral (
    select c.task_id, s.count, s.bytes from suspect c
    cross join lateral (
      select count(*) as count, coalesce(sum(s.bytes), 0) as bytes from (
        select s.bytes from queues.signal s
        where s.task_id = c.task_id and (
          select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
        limit m.count) s) s) u
  cross join lateral (select t.type from queues.task t where t.task_id = u.task_id offset 0) t
  cross join lateral (
    select greatest(u.count::double precision / m.count, u.bytes::double precision / m.bytes) as filled) f
  where f.filled >= 0.9;
end
$$;

-- Checks for runs with a step that fails for long: for the third time, for more than ten minutes, or with its next try
-- only after that. Reads the newest 1,000 of the failed tries that may be of such a step.
create or replace function queues.health_of_steps(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with last_tries as materialized (
    select distinct on (e.task_id, e.step) e.*
    from (
      -- In the words of the index tries_to_look_into.
      select e.* from queues.error e
      where e.step is not null and (e.step_try >= 2 or e.retry_at - e.occurred_at > interval '10 minutes')
      order by e.error_id desc limit 1000) e
    order by e.task_id, e.step, e.step_try desc),
  failing as materialized (
    select t.type, e.task_id, e.step, e.step_try, e.step_tries, e.retry_at, e.message, first.occurred_at as since
    from last_tries e
    cross join lateral (select t.type from queues.task t where t.task_id = e.task_id offset 0) t
    cross join lateral (
      select f.occurred_at from queues.error f where f.task_id = e.task_id and f.step = e.step and f.step is not null
      order by f.step_try limit 1) first
    where (e.step_try >= 3 or e.retry_at - e.occurred_at > interval '10 minutes'
        or first.occurred_at < now - interval '10 minutes')
      and (select true from queues.step s where s.task_id = e.task_id and s.name = e.step limit 1) is null
      and coalesce((select true from queues.ready r where r.task_id = e.task_id limit 1), (
        select l.deleted is null from queues.lease l where l.task_id = e.task_id limit 1), false)),
  longest as (
    select distinct on (f.type) f.*, count(*) over (partition by f.type) as steps
    from failing f order by f.type, f.since, f.task_id, f.step)
  select 'failing_step', 'amber', f.type, f.steps::double precision, 'failing_step' as code,
    jsonb_build_object('step', f.step, 'tried', f.step_try, 'tries', f.step_tries, 'task_id', f.task_id,
      'seconds', extract(epoch from now - f.since),
      'due_in', case when f.retry_at > now then extract(epoch from f.retry_at - now) end),
    left(f.message, 200)
  from longest f order by f.since limit 50;
end
$$;

-- Names the tasks that are a burden: runs of which workers say in heartbeats that the server cannot read or record
-- them, or that they write too much, and child processes that wrote to their worker what is no message. Reads up to 20
-- runs of each worker, and the newest 1,000 errors.
create or replace function queues.health_of_runs(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with told as materialized (
    select h.task_id, h.token, h.trouble, w.worker_id
    from queues.worker w
    cross join lateral jsonb_to_recordset(w.troubles) h(task_id uuid, token bigint, trouble text)
    where w.last_heartbeat > now - w.timeout and w.troubles is not null
    limit 1000)
  select 'troubled_run', 'amber', h.task_id::text,
    extract(epoch from now - coalesce(l.started_at, l.claimed_at))::double precision, k.code,
    jsonb_build_object('type', t.type, 'worker_id', h.worker_id), null
  from told h
  join (values ('run_not_read'), ('step_not_stored'), ('children_not_started'), ('run_throttled')) k(code)
    on k.code = h.trouble
  cross join lateral (
    select l.started_at, l.claimed_at from queues.lease l
    where l.task_id = h.task_id and l.token = h.token and l.worker_id = h.worker_id offset 0) l
  cross join lateral (select t.type from queues.task t where t.task_id = h.task_id offset 0) t
  order by 4 desc, h.task_id limit 50;

  return query
  with newest as materialized (
    select e.* from (select e.* from queues.error e order by e.error_id desc limit 1000) e
    where e.kind = 'envelope_malformed' and e.step is null and e.occurred_at > now - interval '10 minutes')
  select 'troubled_run', 'amber', n.task_id::text, n.age, 'envelope_malformed' as code,
    jsonb_build_object('type', t.type), left(n.message, 200)
  from (
    select distinct on (e.task_id) e.task_id, e.message,
      extract(epoch from now - e.occurred_at)::double precision as age
    from newest e order by e.task_id, e.error_id desc) n
  cross join lateral (select t.type from queues.task t where t.task_id = n.task_id offset 0) t
  order by n.age, n.task_id limit 50;
end
$$;

-- Checks silent and lost workers, the leader, whether ended leases are swept and chores are done, and types that no
-- live worker handles.
create or replace function queues.health_of_workers(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _live bigint := (select count(*) from queues.worker w where w.last_heartbeat > now - w.timeout);
  _led boolean := exists (select from queues.leadership l where l.leader_until >= now);
  _expired bigint;
  _seconds double precision;
  _chores bigint;
  _problem text;
begin
  return query
  select 'workers', 'green', null, _live::double precision,
    case _live when 0 then 'no_workers' else 'workers' end as code, '{}'::jsonb, null;
  if _live > 0 and not _led then
    return query select 'leader', 'amber', null, 0::double precision, 'no_leader' as code, '{}'::jsonb, null;
  end if;

  select count(*), extract(epoch from now - min(e.lease_until)) into _expired, _seconds
  -- Of the pages that one sweep reads.
  from (
    select l.lease_until from queues.lease l where l.ctid < '(32768,0)' and l.lease_until < now limit 1000) e;
  return query
  select 'expired_leases', case when _expired = 0 then 'green' else queues.level_of(_seconds, 10, 60) end, null,
    _expired::double precision, case _expired when 0 then 'no_expired_leases' else 'expired_leases' end as code,
    jsonb_build_object('seconds', _seconds, 'counted_to', 1000), null;

  select count(*), extract(epoch from now - min(c.added_at)), min(c.error) into _chores, _seconds, _problem
  from (select c.added_at, c.error from queues.chore c where c.kind in ('c', 'w') limit 1000) c;
  return query
  select 'chores', case when _chores = 0 then 'green' else queues.level_of(_seconds, 10, 60) end, null,
    _chores::double precision,
    case when _problem is not null then 'chores_failed' when _chores > 0 then 'chores' else 'no_chores' end as code,
    jsonb_build_object('seconds', _seconds, 'counted_to', 1000), _problem;

  return query
  select 'silent_worker', 'red', w.worker_id, extract(epoch from now - w.last_heartbeat)::double precision,
    'silent_worker' as code, jsonb_build_object('hostname', w.hostname, 'pid', w.pid, 'in_flight', w.in_flight), null
  from queues.worker w where w.last_heartbeat <= now - w.timeout order by w.last_heartbeat limit 50;

  return query
  select 'late_worker', 'amber', w.worker_id, extract(epoch from now - w.last_heartbeat)::double precision,
    'late_worker' as code, jsonb_build_object('hostname', w.hostname, 'pid', w.pid, 'in_flight', w.in_flight,
      'heartbeat', extract(epoch from w.heartbeat), 'timeout', extract(epoch from w.timeout)), null
  from queues.worker w
  where w.last_heartbeat <= now - 2 * w.heartbeat - interval '1 second' and w.last_heartbeat > now - w.timeout
  order by w.last_heartbeat limit 50;

  return query
  select 'no_handler', 'amber', t.type, count(*)::double precision, 'no_handler' as code, '{}'::jsonb, null
  from (
    -- Of the latest acts only, so that the cost is bounded.
    select distinct a.task_id from (select a.* from queues.act a order by a.act_id desc limit 1000) a
    where a.act = 'snoozed' and a.data ->> 'kind' = 'no_handler_registered'
      and a.occurred_at > now - interval '10 minutes') a
  join queues.ready r on r.task_id = a.task_id
  join queues.task t on t.task_id = a.task_id
  where not exists (
    select from queues.worker w where w.last_heartbeat > now - w.timeout and t.type = any (w.types))
  group by t.type order by t.type limit 50;

  return query
  select 'lost_worker', 'amber', l.worker_id, extract(epoch from now - l.lost_at)::double precision,
    'lost_worker' as code,
    jsonb_build_object('hostname', l.hostname, 'recovered', l.recovered, 'dead', l.dead), null
  from queues.loss l where l.lost_at > now - interval '1 hour' order by l.lost_at desc limit 50;
end
$$;

-- Checks schedules that are late, invalid, paused or orphaned, or that do not fire because they are not on the first
-- shard.
create or replace function queues.health_of_schedules(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if not queues.is_first_shard() then
    return query
    select 'misplaced_schedule', 'amber', s.name, extract(epoch from now - s.created_at)::double precision,
      'misplaced_schedule' as code, jsonb_build_object('namespace', s.namespace, 'shard', h.shard_name), null::text
    from queues.schedule s cross join queues.shard h
    order by s.name, s.namespace limit 100;
    return;
  end if;
  return query
  select 'late_schedule', queues.level_of(late.seconds, 30, 300), s.name, late.seconds, 'late_schedule' as code,
    jsonb_build_object('namespace', s.namespace), null
  from queues.schedule s
  cross join lateral (
    select extract(epoch from now - coalesce(s.next_at, s.plan_after))::double precision as seconds
    where coalesce(s.next_at, s.plan_after) <= now - interval '10 seconds') late
  where s.paused_at is null and s.orphaned_at is null
  order by late.seconds desc limit 50;

  return query
  select k.code, case k.code when 'broken_schedule' then 'red' else 'amber' end, s.name,
    extract(epoch from now - coalesce(s.orphaned_at, s.paused_at, s.decided_at))::double precision, k.code,
    jsonb_build_object('namespace', s.namespace, 'declared_by', s.declared_by, 'by', s.paused_by,
      'reason', s.pause_reason), case k.code when 'broken_schedule' then left(s.problem, 200) end
  from queues.schedule s
  cross join lateral (
    select case when s.orphaned_at is not null then 'orphaned_schedule'
      when s.paused_at is not null then 'paused_schedule'
      when s.problem is not null then 'broken_schedule' end as code) k
  where k.code is not null
  order by s.name, s.namespace limit 100;

  return query
  select 'repeated_schedule', 'amber', s.name, count(*)::double precision, 'repeated_schedule' as code,
    jsonb_build_object('declared_by', s.declared_by,
      'namespaces', to_jsonb((array_agg(s.namespace order by s.namespace))[1:10])), null
  from queues.schedule s
  where s.declared_by is not null and s.orphaned_at is null and s.paused_at is null
  group by s.declared_by, s.name having count(*) > 1
  order by s.name limit 50;
end
$$;

-- Checks whether retention keeps up: whether tasks are left that it should have deleted an hour ago. Examines at most
-- 5,000 tasks of each status, from where retention has come.
create or replace function queues.health_of_retention(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _start uuid;
  _status text;
  _late integer;
  _very_late integer;
begin
  foreach _status in array array['succeeded', 'failed', 'dead_letter', 'cancelled', 'deleted'] loop
    -- A policy that has just changed may have made many tasks too old at once.
    continue when exists (
      select from queues.retention r
      where r.status = _status and r.changed_at > health_of_retention.now - interval '1 hour');
    _start := coalesce((
      select m.past from queues.retention_mark m where m.status = _status), '00000000-0000-0000-0000-000000000000');
    _late := (
      select cardinality(f.task_ids)
      from queues.find_old_tasks(_status, 1000, _start, health_of_retention.now - interval '1 hour') f);
    continue when _late = 0;
    _very_late := (
      select cardinality(f.task_ids)
      from queues.find_old_tasks(_status, 1000, _start, health_of_retention.now - interval '1 day') f);
    return query
    select 'retention', case when _very_late > 0 then 'red' else 'amber' end, _status, _late::double precision,
      case when _very_late > 0 then 'retention_very_late' else 'retention_late' end as code,
      jsonb_build_object('counted_to', 1000), null;
  end loop;
end
$$;

-- Checks that the roles include each other, without which a login lacks rights that it was meant to have.
create or replace function queues.health_of_roles()
returns setof queues.health_line
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'missing_grant', 'red', m.member, null::double precision, 'missing_grant' as code,
    jsonb_build_object('role', m.role), null
  from unnest(
    array['holdfast_client', 'holdfast_reader', 'holdfast_process', 'holdfast_worker', 'holdfast_dispatcher',
      'holdfast_operator'],
    array['holdfast_process', 'holdfast_operator', 'holdfast_owner', 'holdfast_owner', 'holdfast_owner',
      'holdfast_owner']) m(role, member)
  join pg_namespace n on n.nspname = 'queues' and n.nspowner = to_regrole('holdfast_owner')
  where not coalesce(pg_has_role(to_regrole(m.member), to_regrole(m.role), 'usage'), false)
$$;

-- Checks the server: its clock, old snapshots, dead rows, the notification queue, transaction ids, size and growth.
create or replace function queues.health_of_server(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _usage constant double precision := pg_notification_queue_usage();
  _bytes bigint;
  _day_ago queues.sample;
  _growth double precision;
  -- What was written by the same clock and is in its future. Leases and terms are, but no heartbeat and no sample.
  _ahead constant double precision := extract(epoch from greatest(
    (select max(w.last_heartbeat) from queues.worker w), (select max(s.taken_at) from queues.sample s)) - now);
begin
  if _ahead > 15 then
    return query select 'clock', 'amber', null, _ahead, 'clock_set_back' as code, '{}'::jsonb, null;
  end if;
  return query
  select 'oldest_snapshot', queues.level_of(s.seconds, 300, 3600), s.kind || ' ' || s.name, s.seconds,
    case s.kind when 'session' then 'session_snapshot' when 'prepared transaction' then 'prepared_snapshot'
      else 'slot_snapshot' end as code,
    jsonb_build_object('name', s.name, 'pid', s.pid, 'login', s.login, 'state', s.state), null
  from queues.oldest_snapshots(now) s limit 3;
  if not pg_has_role(current_user, 'pg_read_all_stats', 'usage') then
    return query
    select 'hidden_sessions', 'green', null, null::double precision, 'hidden_sessions' as code,
      jsonb_build_object('hidden_from', quote_ident(current_user)), null;
  end if;

  return query
  select 'dead_rows', queues.level_of(t.n_dead_tup, greatest(100000, t.n_live_tup),
    greatest(1000000, 10 * t.n_live_tup)), t.relname::text, t.n_dead_tup::double precision, 'dead_rows' as code,
    jsonb_build_object('live', t.n_live_tup), null
  from pg_stat_all_tables t
  where t.schemaname = 'queues' and (t.relname in ('ready', 'lease') or t.n_dead_tup >= greatest(100000, t.n_live_tup))
  order by t.relname;

  return query
  select 'notification_queue', queues.level_of(_usage, 0.1, 0.5), 'session ' || holder.pid, _usage,
    case when _usage > 0.5 then 'notification_queue_half_full' else 'notification_queue' end as code,
    jsonb_build_object('pid', holder.pid, 'login', holder.usename, 'seconds', holder.seconds,
      'hidden_from', case when holder.pid is null then quote_ident(current_user) end), null
  from (values (_usage)) one(used)
  left join lateral (
    -- PostgreSQL does not tell which session listens and how far it has read.
    select a.pid, a.usename, extract(epoch from now - a.xact_start)::double precision as seconds
    from pg_stat_activity a
    where _usage >= 0.1 and a.xact_start is not null and a.backend_type = 'client backend'
      and a.pid <> pg_backend_pid()
    order by a.xact_start limit 1) holder on true;
  return query
  select 'transaction_ids', queues.level_of(greatest(age(d.datfrozenxid), mxid_age(d.datminmxid)), 1e9, 1.6e9), null,
    greatest(age(d.datfrozenxid), mxid_age(d.datminmxid))::double precision, 'transaction_ids' as code,
    jsonb_build_object('transactions', age(d.datfrozenxid), 'multixacts', mxid_age(d.datminmxid)), null
  from pg_database d where d.datname = current_database();

  _bytes := queues.total_bytes();
  select s.* into _day_ago from queues.sample s where s.taken_at <= now - interval '1 hour'
  order by abs(extract(epoch from now - interval '1 day' - s.taken_at)) limit 1;
  if found then
    _growth := (_bytes - _day_ago.bytes) * 86400 / extract(epoch from now - _day_ago.taken_at);
  end if;
  return query select 'size', 'green', null, _bytes::double precision, 'size' as code, '{}'::jsonb, null;
  return query
  select 'growth', case when _growth > 1e9 and _growth > _bytes / 2 then 'amber' else 'green' end, null,
    coalesce(_growth, 0), case when _growth is null then 'growth_unknown' else 'growth' end as code, '{}'::jsonb, null;
end
$$;

-- Returns what keeps dead rows from being removed: sessions, prepared transactions and replication slots. The oldest
-- comes first. Without pg_read_all_stats, the owner cannot see what a session does and since when; the age then comes
-- from the samples.
create or replace function queues.oldest_snapshots(now timestamptz)
returns table (kind text, name text, pid integer, login text, seconds double precision, state text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select held.kind, held.name, held.pid, held.login,
    greatest(0, coalesce(extract(epoch from now - held.since)::double precision,
    queues.snapshot_age(held.transactions, now))) as seconds, held.state
  from (
    select 'session' as kind, a.pid::text as name, a.pid, a.usename::text as login, a.xact_start as since,
      greatest(age(a.backend_xmin), age(a.backend_xid))::bigint as transactions,
      -- Not its query, which contains values.
      a.state
    from pg_stat_activity a
    where (a.datname = current_database() or a.datname is null) and a.pid <> pg_backend_pid()
      and a.usename is not null and coalesce(a.backend_xmin, a.backend_xid) is not null
    union all
    select 'prepared transaction', p.gid, null, p.owner::text, p.prepared, age(p.transaction)::bigint, null
    from pg_prepared_xacts p where p.database = current_database()
    union all
    select 'replication slot', s.slot_name::text, s.active_pid, null, null,
      greatest(age(s.xmin), age(s.catalog_xmin))::bigint, null
    from pg_replication_slots s where s.xmin is not null) held
  order by seconds desc
$$;

-- Returns the minimum age in seconds of a transaction, from the number of later ones and the samples.
create or replace function queues.snapshot_age(transactions bigint, now timestamptz)
returns double precision
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(extract(epoch from now - min(s.taken_at)), 0)::double precision
  from queues.sample s
  where age(s.transaction_id::xid) < transactions
$$;

-- Returns the total size of all tables and indexes of the engine.
create or replace function queues.total_bytes()
returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
  from pg_class c where c.relnamespace = 'queues'::regnamespace and c.relkind in ('r', 'm')
$$;
