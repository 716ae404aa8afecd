-- Returns what holds back due tasks of a queue: limits, rates and open transactions. Returns one row for each of them,
-- with the oldest waiting task, and one row without a kind for tasks that nothing holds back. Concurrency keys of one
-- type count together. Reads each lane once.
-- Internal: called by health.
create or replace function queues.explain_held(queue text, now timestamptz)
returns table (kind text, subject text, name text, lanes integer, oldest_due timestamptz, words text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with due as materialized (
    select l.lane_id, first.run_at
    from queues.lane l
    cross join lateral (
      select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where l.queue = explain_held.queue and first.run_at <= explain_held.now),
  gate as materialized (
    select g.* from queues.gates_in_use(array(select d.lane_id from due d), explain_held.now) g),
  held as materialized (
    select distinct on (d.lane_id) d.lane_id, d.run_at, g.subject, g.name, g.concurrency_key, g.max_running, g.refills_in, lock.words,
      case when g.is_full then case g.concurrency_key when '' then 'max_running' else 'per_key' end
        when g.refills_in is not null then 'rate' when lock.words is not null then 'lock' end as kind
    from due d
    left join gate g on g.lane_id = d.lane_id
    left join (
      select k.lock, queues.explain_limit_lock(k.lock, explain_held.now) as words
      from (select distinct g.lock from gate g) k) lock on lock.lock = g.lock
    order by d.lane_id, coalesce(g.is_full, false) desc, g.refills_in desc nulls last, lock.words nulls last),
  cause as (
    select h.kind, case when h.kind is not null then h.subject end as subject, case when h.kind is not null then h.name end as name,
      count(*)::integer as lanes, min(h.run_at) as oldest_due, count(distinct h.concurrency_key) as keys, min(h.concurrency_key) as one_key,
      max(h.max_running) as max_running, max(h.refills_in) as refills_in, min(h.words) as words
    from held h group by 1, 2, 3)
  select c.kind, c.subject, c.name, c.lanes, c.oldest_due,
    case c.kind
      when 'per_key' then case c.keys when 1
        then queues.limit_in_words(c.subject, c.name, c.one_key, c.max_running) || ', and that many run now'
        else format('%s concurrency keys of %s %s, such as %s, run as many tasks at once as they may (%s)', c.keys, c.subject, c.name,
          to_json(c.one_key), c.max_running) end
      when 'max_running' then queues.limit_in_words(c.subject, c.name, '', c.max_running) || ', and that many run now'
      when 'rate' then format('%s %s has used up its rate, which lets the next task start in %s', c.subject, c.name,
        queues.in_words(extract(epoch from c.refills_in)::double precision))
      when 'lock' then c.words end
  from cause c order by c.oldest_due
$$;

comment on function queues.explain_held(text, timestamptz) is
  'Returns what holds back due tasks of a queue: limits, rates and open transactions.';
