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

comment on function queues.health_of_tasks(timestamptz) is
  'Checks how long the newest tasks waited, the failure rate of each type, and runs whose mailbox is nearly full.';
