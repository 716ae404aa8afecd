-- Returns the executor of a task: the given one, else the task_type of the payload, else python. A task_type that is
-- not an executor belongs to the application and is ignored.
create or replace function queues.executor_for(executor text, payload jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(executor,
    (select e.executor from queues.executor e
      where jsonb_typeof(payload) = 'object' and e.executor = payload ->> 'task_type'),
    'python')
$$;

comment on function queues.executor_for(text, jsonb) is
  'Returns the executor of a task: the given one, else the task_type of the payload, else python.';
