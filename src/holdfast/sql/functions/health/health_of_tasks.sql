-- How tasks fare: how long the newest ones waited, and which types fail. Looks at a thousand rows of each kind.
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
      select o.task_id, o.claimed_at, o.finished_at, o.attempt from queues.outcome o order by o.task_id desc limit 1000) o
    where o.attempt = 1 and o.claimed_at is not null and o.finished_at > now - interval '5 minutes'),
  -- What was put off, released or rescheduled was not due when it was asked for.
  waited as materialized (
    select t.queue, extract(epoch from n.claimed_at - t.run_at)::double precision as seconds
    from newest n
    cross join lateral (select t.queue, t.run_at from queues.task t where t.task_id = n.task_id offset 0) t
    where not exists (select from queues.act a where a.task_id = n.task_id)),
  delay as (
    select w.queue, count(*) as tasks, percentile_cont(0.5) within group (order by w.seconds) as p50,
      percentile_cont(0.99) within group (order by w.seconds) as p99
    from waited w group by w.queue)
  select v.check_name, v.level, d.queue, v.value,
    format('half of the last %s tasks of queue %s were claimed within %s, 99 of 100 within %s', d.tasks, d.queue,
      queues.in_words(d.p50), queues.in_words(d.p99)),
    case when v.level <> 'green' then 'Run more workers, or more tasks at once: holdfast workers shows how busy they are.' end
  from delay d
  cross join lateral (values
    ('delay_p50', 'green', d.p50), ('delay_p99', queues.level_of(d.p99, 60, 600), d.p99)) v(check_name, level, value)
  order by d.p99 desc limit 200;

  return query
  with newest as materialized (
    select e.task_id, e.retry_at, e.message, e.error_id from (
      select e.task_id, e.retry_at, e.message, e.error_id, e.occurred_at from queues.error e order by e.error_id desc limit 1000) e
    where e.occurred_at > now - interval '10 minutes'),
  failing as (
    select t.type, count(*) as errors, count(*) filter (where n.retry_at is null) as ended,
      (array_agg(n.message order by n.error_id desc))[1] as last_message
    from newest n
    cross join lateral (select t.type from queues.task t where t.task_id = n.task_id offset 0) t
    group by t.type)
  select 'failing_type', case when f.ended >= 20 then 'red' when f.ended > 0 or f.errors >= 20 then 'amber' else 'green' end,
    f.type, f.errors::double precision,
    format('%s attempt%s of type %s failed in the last 10 minutes, and %s task%s ended so; the last time: %s', f.errors,
      case f.errors when 1 then '' else 's' end, f.type, f.ended, case f.ended when 1 then '' else 's' end, left(f.last_message, 200)),
    format('Look into them: holdfast list --type %s --status dead_letter (or failed). Once mended: holdfast retry --type %s', f.type, f.type)
  from failing f order by f.ended desc, f.errors desc limit 50;
end
$$;

comment on function queues.health_of_tasks(timestamptz) is 'How tasks fare: how long the newest ones waited, and which types fail.';
