-- How often the supervisor has waited for the last attempt.
create or replace function @name@.count_@name@_task_waits(@name@_task_id bigint)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*)::integer from @name@.@name@_task_supervised f
  where f.@name@_task_id = $1 and f.decision = 'wait' and f.run > (
    select coalesce(max(a.run), 0) from @name@.@name@_task_supervised a where a.@name@_task_id = $1 and a.decision = 'attempt')
$$;

