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

comment on function queues.explain_steps(uuid) is
  'Explains which steps of a task fail: those whose last try failed and that have not come to an end.';
