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

comment on function queues.explain_held(text[], timestamptz) is
  'Returns what holds back due tasks of these queues: limits, rates and open transactions.';
