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

comment on function queues.health_of_steps(timestamptz) is
  'Checks for runs with a step that fails for the third time, for more than ten minutes, or is tried again only then.';
