-- Enqueues a batch for holdfast_client: only executors that act with the rights of the worker. The right to execute
-- this function is the authority. PostgreSQL checks it against the current caller, also inside a business function that
-- runs with its owner's rights.
create or replace function queues.enqueue_for_client(tasks jsonb)
returns table (task_id uuid, created boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select i.task_id, i.created from queues.insert_tasks(tasks, for_process => false) i $$;

comment on function queues.enqueue_for_client(jsonb) is
  'Enqueues a batch for holdfast_client: only executors that act with the rights of the worker.';
