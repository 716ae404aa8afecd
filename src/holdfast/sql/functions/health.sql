-- The health of the installation: one function per area looks for what is wrong, and health puts the lines together.
-- Invariant: a check only reads, and how much depends neither on how many tasks wait nor on how many have ended: it has
-- to answer when queues are long and workers are gone. Each line names what it judges.
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

-- Returns one row per health check, the worst first: its level, a number, a description, and what to do. The level is
-- green, amber or red. The cost depends neither on finished tasks nor on backlogs.
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
-- Internal: called by health.
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
    select h.* from queues.explain_held(array(select w.queue from waiting w where w.seconds >= 60), now) h)
  -- If nothing holds the oldest task back, more workers help. If only limits do, which somebody has set, it is amber.
  select 'oldest_due', case when w.served and h.limited then queues.level_of(w.seconds, 60, 'infinity')
      else queues.level_of(w.seconds, 60, 600) end, w.queue, w.seconds,
    format('the oldest due task of queue %s has waited for %s%s', w.queue, queues.format_duration(w.seconds),
      ': ' || left(h.first, 300)),
    case when h.first is not null then format('Limits hold back %s: %s. To change them: holdfast limits',
        case when h.whole then 'all due tasks' else 'the oldest due task' end, left(h.words, 1000))
      when w.seconds >= 60
        then 'Run more workers, or more tasks at once: holdfast workers shows which ones serve it.' end, null
  from waiting w
  left join lateral (
    select (array_agg(h.words order by h.oldest_due))[1] as first, string_agg(h.words, '; ' order by h.oldest_due)
        as words, bool_and(h.kind is not null) as whole, bool_and(coalesce(h.kind, 'none') not in ('none', 'lock'))
        as limited
    from held h where h.queue = w.queue having (array_agg(h.kind order by h.oldest_due))[1] is not null) h on true
  union all
  select 'unserved', queues.level_of(w.seconds, 10, 60), w.queue, w.seconds,
    format('no live worker subscribes to queue %s, or to a prefix of type %s; its oldest due task has waited for %s',
      w.queue, w.unserved, queues.format_duration(w.seconds)),
    format('Start one: holdfast worker … --queues %s', w.queue), null
  from waiting w where not w.served
  order by 4 desc limit 200;

  return query
  select 'lanes', queues.level_of(count(*), 10000, 100000), null, count(*)::double precision,
    format('tasks wait or run in %s combinations of queue, type and priority%s',
      count(*) filter (where l.leaving is null),
      case when count(l.leaving) > 0 then format('; %s more are being removed', count(l.leaving)) else '' end),
    case when count(*) >= 10000 and 2 * count(l.leaving) > count(*)
      then 'Claims slow down. A transaction that has enqueued tasks and stays open keeps idle ones from being removed: '
        'look for the oldest snapshot.'
      when count(*) >= 10000 then 'Claims slow down. Use fewer queues, types and priorities at once.' end, null
  from queues.lane l where coalesce(l.concurrency_key, '') = '';

  return query
  select 'held_limit', queues.level_of(h.seconds, 10, 60), h.pid::text, h.seconds,
    format('session %s of login %s has claimed under a limit, or changed one, in a transaction that has been open for '
      '%s', h.pid, h.login, queues.format_duration(h.seconds)),
    format('Nothing else is claimed under that limit meanwhile. End it in its application, or: select '
      'pg_terminate_backend(%s)', h.pid), null
  from (
    select h.pid, h.login, max(h.seconds) as seconds from queues.held_limit_locks(now) h
    where h.seconds >= 10 group by h.pid, h.login) h
  order by h.seconds desc limit 20;

  return query
  select 'paused_queue', 'amber', p.queue, extract(epoch from now - p.paused_at)::double precision,
    format('queue %s was paused %s ago by %s%s', p.queue,
      queues.format_duration(extract(epoch from now - p.paused_at)::double precision),
      p.paused_by, coalesce(' because: ' || p.reason, '')),
    format('To resume: holdfast resume %s', p.queue), null
  from queues.paused_queue p order by p.paused_at limit 100;
end
$$;

-- Returns green, amber or red, by two thresholds.
create or replace function queues.level_of(value double precision, amber double precision, red double precision)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select case when value >= red then 'red' when value >= amber then 'amber' else 'green' end $$;

-- Returns a duration as readable text.
create or replace function queues.format_duration(seconds double precision)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case when seconds < 10 then round(greatest(0, seconds)::numeric, 2) || ' s'
    when seconds < 120 then round(seconds) || ' s'
    when seconds < 7200 then round(seconds / 60) || ' min' when seconds < 172800 then round(seconds / 3600) || ' h'
    else round(seconds / 86400) || ' days' end
$$;

-- Checks how long the newest tasks waited, the failure rate of each type, and runs whose mailbox is nearly full. Reads
-- a thousand rows of each kind, 200 tasks and ten minutes of reports per failing type, and the signals of 20 runs.
-- Internal: called by health.
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
    format('half of the last %s tasks of queue %s were claimed within %s, 99 of 100 within %s%s', d.tasks, d.queue,
      queues.format_duration(d.p50), queues.format_duration(d.p99),
      case when d.resumed then '; it was paused until a moment ago' else '' end),
    case when v.level = 'green' then null
      when d.limited then 'If its limits hold tasks back, that is as intended: holdfast limits. Otherwise run more '
        'workers.'
      else 'Run more workers, or more tasks at once: holdfast workers shows how busy they are.' end, null
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
      select coalesce(sum(a.succeeded + a.failed + a.dead_letter + a.cancelled), 0)::bigint as total,
        coalesce(sum(a.failed + a.dead_letter), 0)::bigint as failed
      from unnest(f.queues) q(queue)
      join queues.activity a on a.period = 1 and a.queue = q.queue and a.type = f.type
        and a.at > now - interval '10 minutes') reported)
  select 'failing_type', case
      when r.known and r.failed >= 5 and r.failed * 2 >= r.total then 'red'
      when r.failed > 0 and r.failed * 20 >= r.total or r.errors >= 5 and r.errors > r.total - r.failed then 'amber'
      else 'green' end,
    r.type, case when r.total = 0 then 0 else r.failed::double precision / r.total end,
    format('%s%s in the last 10 minutes',
      case when r.total = 0 then format('no task of type %s has ended, and ', r.type)
        else format('%s task%s of type %s failed for good, and ',
          case when r.known then format('%s of the last %s', r.failed, r.total) else format('%s', r.failed) end,
          case r.total when 1 then '' else 's' end, r.type) end,
      concat_ws(' and ',
        case when r.errors > r.tries or r.tries = 0 then format('%s attempt%s', r.errors - r.tries,
          case r.errors - r.tries when 1 then '' else 's' end) end,
        case when r.tries > 0 then format('%s %s of steps, the last of %s,', r.tries,
          case r.tries when 1 then 'try' else 'tries' end, r.last_step) end) || ' failed'),
    case when r.failed > 0 then format('To see them: holdfast list --type %s --status dead_letter (or failed). Once '
        'fixed: holdfast retry --type %s', r.type, r.type)
      else format('They are tried again by themselves. To see one: holdfast why %s. All: holdfast errors --type %s',
        r.last_id, r.type) end,
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
  select 'full_mailbox', 'amber', u.task_id::text, f.filled,
    format('run %s of type %s has %s signals of %s bytes that it has not taken, and at most %s of %s bytes are kept',
      u.task_id, t.type, u.count, u.bytes, m.count, m.bytes),
    format('Further ones are refused. What it waits for: holdfast runs show %s. To end it: holdfast cancel %s',
      u.task_id, u.task_id), null
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
-- Internal: called by health.
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
  select 'failing_step', 'amber', f.type, f.steps::double precision,
    format('%s of runs of type %s fail%s; longest, %s has failed %s, for %s; its next try %s',
      case f.steps when 1 then 'a step' else f.steps || ' steps' end, f.type, case f.steps when 1 then 's' else '' end,
      f.step, concat(f.step_try, ' of ' || f.step_tries, case f.step_try when 1 then ' try' else ' tries' end),
      queues.format_duration(extract(epoch from now - f.since)::double precision),
      case when f.retry_at > now
        then 'is due in ' || queues.format_duration(extract(epoch from f.retry_at - now)::double precision)
        else 'is due' end),
    format('It is tried again by itself. To see why it fails: holdfast why %s. All: holdfast runs list --type %s',
      f.task_id, f.type),
    left(f.message, 200)
  from longest f order by f.since limit 50;
end
$$;

-- Names the tasks that are a burden: runs of which workers say in heartbeats that the server cannot read or record
-- them, or that they write too much, and child processes that wrote to their worker what is no message. Reads up to 20
-- runs of each worker, and the newest 1,000 errors.
-- Internal: called by health.
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
    extract(epoch from now - coalesce(l.started_at, l.claimed_at))::double precision,
    format('run %s of type %s has a problem (%s): %s; worker %s has run it for %s', h.task_id, t.type, h.trouble,
      k.problem, h.worker_id,
      queues.format_duration(extract(epoch from now - coalesce(l.started_at, l.claimed_at))::double precision)),
    format('%s The log of worker %s says more. To end it: holdfast cancel %s', k.advice, h.worker_id, h.task_id), null
  from told h
  join (values
    ('the server cannot read what it remembers', 'run_not_read', 'It is tried again by itself.'),
    ('the server cannot store a step of it', 'step_not_stored', 'It is tried again by itself.'),
    ('the server cannot start the tasks that it starts', 'children_not_started',
      'It is tried again by itself. Look for a transaction that stays open and holds an idempotency key.'),
    ('its child process has to wait because it writes too much to its worker', 'run_throttled',
      'It goes on slowly. Let it record fewer steps, or report progress less often.'))
    k(problem, trouble, advice) on k.trouble = h.trouble
  cross join lateral (
    select l.started_at, l.claimed_at from queues.lease l
    where l.task_id = h.task_id and l.token = h.token and l.worker_id = h.worker_id offset 0) l
  cross join lateral (select t.type from queues.task t where t.task_id = h.task_id offset 0) t
  order by 4 desc, h.task_id limit 50;

  return query
  with newest as materialized (
    select e.* from (select e.* from queues.error e order by e.error_id desc limit 1000) e
    where e.kind = 'envelope_malformed' and e.step is null and e.occurred_at > now - interval '10 minutes')
  select 'troubled_run', 'amber', n.task_id::text, n.age,
    format('task %s of type %s wrote what is no message to its worker (envelope_malformed), %s ago', n.task_id, t.type,
      queues.format_duration(n.age)),
    format('Its handler must not write to the descriptor of the worker, nor a command print anything but its envelope. '
      'What it did: holdfast why %s', n.task_id),
    left(n.message, 200)
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
-- Internal: called by health.
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
  _first timestamptz;
  _chores bigint;
  _problem text;
begin
  return next row('workers', 'green', null, _live,
    format('%s live worker%s', _live, case _live when 1 then '' else 's' end),
    case when _live = 0 then 'Start one: holdfast worker' end, null)::queues.health_line;
  if _live > 0 and not _led then
    return next row('leader', 'amber', null, 0,
      'there is no leader: schedules do not fire, and silent workers are not removed before their leases end',
      'Look for lead_refused and duty_failed in the logs of the workers.', null)::queues.health_line;
  end if;

  select count(*), min(e.lease_until) into _expired, _first
  -- Of the pages that one sweep reads.
  from (
    select l.lease_until from queues.lease l where l.ctid < '(32768,0)' and l.lease_until < now limit 1000) e;
  return next row('expired_leases',
    case when _expired = 0 then 'green'
      else queues.level_of(extract(epoch from now - _first)::double precision, 10, 60) end,
    null, _expired, case when _expired = 0 then 'no lease has ended without a report'
      else format('%s%s lease%s ended without a report, the first %s ago', _expired,
        case when _expired = 1000 then ' or more' else '' end,
        case _expired when 1 then '' else 's' end,
          queues.format_duration(extract(epoch from now - _first)::double precision)) end,
    case when _expired > 0 then 'Any worker sweeps them: start one, or call queues.sweep().' end,
    null)::queues.health_line;

  select count(*), min(c.added_at), min(c.error) into _chores, _first, _problem
  from (select c.added_at, c.error from queues.chore c where c.kind in ('c', 'w') limit 1000) c;
  return next row('chores',
    case when _chores = 0 then 'green'
      else queues.level_of(extract(epoch from now - _first)::double precision, 10, 60) end,
    null, _chores, case when _chores = 0 then 'the engine has nothing left to do'
      else format('%s%s chore%s of the engine (runs to wake, tasks to cancel) wait%s, the first for %s', _chores,
        case when _chores = 1000 then ' or more' else '' end, case _chores when 1 then '' else 's' end,
        case _chores when 1 then 's' else '' end,
        queues.format_duration(extract(epoch from now - _first)::double precision)) end,
    case when _problem is not null
        then 'Some failed, and are tried again after the others. Repair what the error names.'
      when _chores > 0 then 'The leader does them. Look for a transaction that stays open and holds such a task, and '
        'for chore_failed in the logs of the workers.' end, _problem)::queues.health_line;

  return query
  select 'silent_worker', 'red', w.worker_id, extract(epoch from now - w.last_heartbeat)::double precision,
    format('worker %s on %s (pid %s) has been silent for %s, and held %s task%s at its last heartbeat',
      w.worker_id, w.hostname, coalesce(w.pid::text, 'unknown'),
      queues.format_duration(extract(epoch from now - w.last_heartbeat)::double precision), w.in_flight,
      case w.in_flight when 1 then '' else 's' end),
    'The leader recovers its tasks and removes it. If it stays, check whether there is a leader, and see its log.', null
  from queues.worker w where w.last_heartbeat <= now - w.timeout order by w.last_heartbeat limit 50;

  return query
  select 'late_worker', 'amber', w.worker_id, extract(epoch from now - w.last_heartbeat)::double precision,
    format('worker %s on %s (pid %s) sends a heartbeat every %s, and the last one came %s ago; it held %s task%s '
      'then', w.worker_id, w.hostname, coalesce(w.pid::text, 'unknown'),
      queues.format_duration(extract(epoch from w.heartbeat)::double precision),
      queues.format_duration(extract(epoch from now - w.last_heartbeat)::double precision), w.in_flight,
      case w.in_flight when 1 then '' else 's' end),
    format('Check whether it still runs. After %s of silence, other workers get its tasks.',
      queues.format_duration(extract(epoch from w.timeout)::double precision)), null
  from queues.worker w
  where w.last_heartbeat <= now - 2 * w.heartbeat - interval '1 second' and w.last_heartbeat > now - w.timeout
  order by w.last_heartbeat limit 50;

  return query
  select 'no_handler', 'amber', t.type, count(*)::double precision,
    format('no live worker has a handler for %s: %s task%s postponed within the last ten minutes', t.type, count(*),
      case count(*) when 1 then ' was' else 's were' end),
    'Start a worker with the application that declares it; else they fail. If the name is wrong, cancel them.', null
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
    format('worker %s on %s was lost %s ago; %s of its tasks went back to the queue, and %s ended',
      l.worker_id, l.hostname, queues.format_duration(extract(epoch from now - l.lost_at)::double precision),
      l.recovered, l.dead),
    'Find out why it ended: its log, the memory of its machine, the limits of its container.', null
  from queues.loss l where l.lost_at > now - interval '1 hour' order by l.lost_at desc limit 50;
end
$$;

-- Checks schedules that are late, invalid, paused or orphaned, or that do not fire because they are not on the first
-- shard.
-- Internal: called by health.
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
      format('schedule %s of namespace %s is on shard %s and does not fire: schedules are on the first shard', s.name,
        s.namespace, h.shard_name),
      format('Remove it with the address of %s: holdfast schedules remove %s --namespace %L --database-url …',
        h.shard_name, s.name, s.namespace), null::text
    from queues.schedule s cross join queues.shard h
    order by s.name, s.namespace limit 100;
    return;
  end if;
  return query
  select 'late_schedule', queues.level_of(late.seconds, 30, 300), s.name, late.seconds,
    format('schedule %s of namespace %s should have fired %s ago', s.name, s.namespace,
      queues.format_duration(late.seconds)),
    'The leader fires it: check whether there is a leader (holdfast workers), and look for duty_failed in its log.',
    null
  from queues.schedule s
  cross join lateral (
    select extract(epoch from now - coalesce(s.next_at, s.plan_after))::double precision as seconds
    where coalesce(s.next_at, s.plan_after) <= now - interval '10 seconds') late
  where s.paused_at is null and s.orphaned_at is null
  order by late.seconds desc limit 50;

  return query
  select case when s.orphaned_at is not null then 'orphaned_schedule'
    when s.paused_at is not null then 'paused_schedule'
      else 'broken_schedule' end,
    case when s.orphaned_at is null and s.paused_at is null then 'red' else 'amber' end, s.name,
    extract(epoch from now - coalesce(s.orphaned_at, s.paused_at, s.decided_at))::double precision,
    case when s.orphaned_at is not null
      then format('schedule %s of namespace %s is no longer in the code of %s, and does not fire', s.name,
        s.namespace, s.declared_by)
      when s.paused_at is not null then format('schedule %s of namespace %s was paused by %s%s', s.name, s.namespace,
        s.paused_by, coalesce(' because: ' || s.pause_reason, ''))
      else format('schedule %s of namespace %s does not fire', s.name, s.namespace) end,
    case when s.orphaned_at is not null
      then format('If it is not needed: holdfast schedules remove %s --namespace %L', s.name, s.namespace)
      when s.paused_at is not null then format('To resume: holdfast schedules resume %s --namespace %L', s.name,
        s.namespace)
      else 'Fix it in the code, or remove it and add it again.' end,
    case when s.orphaned_at is null and s.paused_at is null then left(s.problem, 200) end
  from queues.schedule s
  where s.orphaned_at is not null or s.paused_at is not null or s.problem is not null
  order by s.name, s.namespace limit 100;

  return query
  select 'repeated_schedule', 'amber', s.name, count(*)::double precision,
    format('%s declares schedule %s in %s namespaces, and each of them fires: %s', s.declared_by, s.name, count(*),
      left(string_agg(s.namespace, ', ' order by s.namespace), 200)),
    'If this is one application, let its logins share a namespace (holdfast namespaces add) and remove the others.',
    null
  from queues.schedule s
  where s.declared_by is not null and s.orphaned_at is null and s.paused_at is null
  group by s.declared_by, s.name having count(*) > 1
  order by s.name limit 50;
end
$$;

-- Checks whether retention keeps up: whether tasks are left that it should have deleted an hour ago. Examines at most
-- 5,000 tasks of each status, from where retention has come.
-- Internal: called by health.
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
    return next row('retention', case when _very_late > 0 then 'red' else 'amber' end, _status, _late,
      format('%s%s %s task%s should have been deleted more than %s ago', _late,
        case when _late = 1000 then ' or more' else '' end, _status, case _late when 1 then '' else 's' end,
        case when _very_late > 0 then 'a day' else 'an hour' end),
      'The leader deletes them: check whether there is one, and look for duty_failed in its log. '
      'holdfast prune deletes them at once.', null)::queues.health_line;
  end loop;
end
$$;

-- Checks that the roles include each other, without which a login lacks rights that it was meant to have.
-- Internal: called by health.
create or replace function queues.health_of_roles()
returns setof queues.health_line
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'missing_grant', 'red', m.member, null::double precision,
    format('members of %s lack the rights of %s', m.member, m.role), format('Have a DBA run: grant %I to %I;', m.role,
      m.member), null
  from unnest(
    array['holdfast_client', 'holdfast_reader', 'holdfast_process', 'holdfast_worker', 'holdfast_dispatcher',
      'holdfast_operator'],
    array['holdfast_process', 'holdfast_operator', 'holdfast_owner', 'holdfast_owner', 'holdfast_owner',
      'holdfast_owner']) m(role, member)
  join pg_namespace n on n.nspname = 'queues' and n.nspowner = to_regrole('holdfast_owner')
  where not coalesce(pg_has_role(to_regrole(m.member), to_regrole(m.role), 'usage'), false)
$$;

-- Checks the server: its clock, old snapshots, dead rows, the notification queue, transaction ids, size and growth.
-- Internal: called by health.
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
    return next row('clock', 'amber', null, _ahead,
      format('the clock of the database server was set back: the newest heartbeat or sample is %s in its future',
        queues.format_duration(_ahead)),
      'Until the clock is there, silent workers look alive, and times in lists are wrong. Check how the server sets '
      'its clock, and restart the workers.', null)::queues.health_line;
  end if;
  return query
  select 'oldest_snapshot', queues.level_of(s.seconds, 300, 3600), s.kind || ' ' || s.subject, s.seconds,
    format('%s %s%s has held a snapshot for %s: %s', s.kind, s.subject, coalesce(' of ' || s.login, ''),
      queues.format_duration(s.seconds), s.description),
    case when s.seconds < 300 then null
      when s.kind = 'session'
        then format('Dead rows cannot be removed meanwhile. End it in its application, or: select '
          'pg_terminate_backend(%s)', s.subject)
      when s.kind = 'prepared transaction'
        then format('Dead rows cannot be removed meanwhile: commit prepared %L, or roll it back.', s.subject)
      else 'Dead rows cannot be removed meanwhile. Check its standby, or drop the slot.' end, null
  from queues.oldest_snapshots(now) s limit 3;
  if not pg_has_role(current_user, 'pg_read_all_stats', 'usage') then
    return next row('hidden_sessions', 'green', null, null, 'health cannot see what sessions of other logins do',
      format('To see it: grant pg_read_all_stats to %I', current_user), null)::queues.health_line;
  end if;

  return query
  select 'dead_rows', queues.level_of(t.n_dead_tup, greatest(100000, t.n_live_tup),
    greatest(1000000, 10 * t.n_live_tup)), t.relname::text, t.n_dead_tup::double precision,
    format('queues.%s has %s dead rows beside %s live ones', t.relname, t.n_dead_tup, t.n_live_tup),
    case when t.n_dead_tup >= greatest(100000, t.n_live_tup)
      then 'Claims slow down. Look for the oldest snapshot, then whether autovacuum runs: pg_stat_all_tables.' end, null
  from pg_stat_all_tables t
  where t.schemaname = 'queues' and (t.relname in ('ready', 'lease') or t.n_dead_tup >= greatest(100000, t.n_live_tup))
  order by t.relname;

  return query
  select 'notification_queue', queues.level_of(_usage, 0.1, 0.5), 'session ' || holder.pid, _usage,
    format('%s %% of the queue of notifications is in use', round(100 * _usage::numeric, 1))
      || case when _usage > 0.5 then ': Holdfast sends none, so workers, dispatchers and callers poll' else '' end
      || case when holder.pid is null then ''
        else format('; the oldest transaction is that of session %s of %s, for %s', holder.pid, holder.usename,
          queues.format_duration(holder.seconds)) end,
    case when _usage >= 0.1
      then 'A session listens and stays in a transaction. '
        || case when holder.pid is null then format('To see which: grant pg_read_all_stats to %I', current_user)
          else format('End it: select pg_terminate_backend(%s)', holder.pid) end
        || '. Set idle_in_transaction_session_timeout for its login. When the queue is full, commits of other '
        'applications that notify fail.' end, null
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
    greatest(age(d.datfrozenxid), mxid_age(d.datminmxid))::double precision,
    format('the oldest transaction id is %s million back, the oldest multixact %s million; at 2100 million the '
      'server stops', age(d.datfrozenxid) / 1000000, mxid_age(d.datminmxid) / 1000000),
    case when greatest(age(d.datfrozenxid), mxid_age(d.datminmxid)) >= 1e9
      then 'Look for the oldest snapshot, let autovacuum run, or: vacuum (freeze)' end, null
  from pg_database d where d.datname = current_database();

  _bytes := queues.total_bytes();
  select s.* into _day_ago from queues.sample s where s.taken_at <= now - interval '1 hour'
  order by abs(extract(epoch from now - interval '1 day' - s.taken_at)) limit 1;
  if found then
    _growth := (_bytes - _day_ago.bytes) * 86400 / extract(epoch from now - _day_ago.taken_at);
  end if;
  return next row('size', 'green', null, _bytes, format('all tables and indexes take %s', pg_size_pretty(_bytes)),
    null, null)::queues.health_line;
  return next row('growth', case when _growth > 1e9 and _growth > _bytes / 2 then 'amber' else 'green' end, null,
    coalesce(_growth, 0),
    case when _growth is null then 'growth is known after a leader has run for an hour'
      else format('they grow by %s per day', pg_size_pretty(_growth::bigint)) end,
    case when _growth > 1e9 and _growth > _bytes / 2
      then 'Keep finished tasks for a shorter time: see retention.' end, null)::queues.health_line;
end
$$;

-- Returns what keeps dead rows from being removed: sessions, prepared transactions and replication slots. The oldest
-- comes first. Without pg_read_all_stats, the owner cannot see what a session does and since when; the age then comes
-- from the samples.
-- Internal.
create or replace function queues.oldest_snapshots(now timestamptz)
returns table (kind text, subject text, login text, seconds double precision, description text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select held.kind, held.subject, held.login,
    greatest(0, coalesce(extract(epoch from now - held.since)::double precision,
    queues.snapshot_age(held.transactions, now))) as seconds, held.description
  from (
    select 'session' as kind, a.pid::text as subject, a.usename::text as login, a.xact_start as since,
      greatest(age(a.backend_xmin), age(a.backend_xid))::bigint as transactions,
      -- Not its query, which contains values.
      coalesce(a.state, 'doing what is hidden') as description
    from pg_stat_activity a
    where (a.datname = current_database() or a.datname is null) and a.pid <> pg_backend_pid()
      and a.usename is not null and coalesce(a.backend_xmin, a.backend_xid) is not null
    union all
    select 'prepared transaction', p.gid, p.owner::text, p.prepared, age(p.transaction)::bigint,
      'prepared and not committed'
    from pg_prepared_xacts p where p.database = current_database()
    union all
    select 'replication slot', s.slot_name::text, null, null, greatest(age(s.xmin), age(s.catalog_xmin))::bigint,
      case when s.active then 'in use by pid ' || s.active_pid else 'not in use' end
    from pg_replication_slots s where s.xmin is not null) held
  order by seconds desc
$$;

-- Returns the minimum age in seconds of a transaction, from the number of later ones and the samples.
-- Internal.
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
