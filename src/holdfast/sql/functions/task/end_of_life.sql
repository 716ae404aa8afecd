-- Returns when a task with a deadline has to have ended. The deadline counts from the enqueue, or from the last retry
-- by hand, which would be of no use otherwise.
-- Internal: called by claim, explain and run_timeline.
create or replace function queues.end_of_life(task_id uuid, created_at timestamptz, deadline interval)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((
    select a.occurred_at from queues.act a where a.task_id = end_of_life.task_id and a.act = 'retried'
    order by a.act_id desc limit 1), created_at) + deadline
$$;

comment on function queues.end_of_life(uuid, timestamptz, interval) is
  'Returns when a task with a deadline has to have ended.';
