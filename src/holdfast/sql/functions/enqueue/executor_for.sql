-- The executor of a task: the one given, else the one that the payload names as its task_type, else python.
-- A task_type that is none of ours is the application's business.
create or replace function queues.executor_for(executor text, payload jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(executor,
    (select e.executor from queues.executor e where jsonb_typeof(payload) = 'object' and e.executor = payload ->> 'task_type'),
    'python')
$$;

comment on function queues.executor_for(text, jsonb) is
  'The executor of a task: the one given, else the one that the payload names as its task_type, else python.';
