-- Enqueues for holdfast_process: tasks of every executor, also of those that act with the rights of the database. The right to execute this function is the authority: Postgres checks
-- it against whoever calls, also inside a business function that runs with its owner's rights.
create or replace function queues.enqueue_for_process(tasks jsonb)
returns table (task_id uuid, created boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select i.task_id, i.created from queues.insert_tasks(tasks, for_process => true) i $$;

comment on function queues.enqueue_for_process(jsonb) is
  'Enqueues for holdfast_process: tasks of every executor, also of those that act with the rights of the database.';
