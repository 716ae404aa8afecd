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

comment on function queues.health_of_queues(timestamptz) is
  'Checks tasks that wait too long, and why no worker takes them, with one index lookup per lane.';
