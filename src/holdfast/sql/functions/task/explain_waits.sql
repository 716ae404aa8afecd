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

comment on function queues.explain_waits(uuid) is
  'Explains what a suspended run, or a task that comes after others, waits for.';
