-- Returns the failed attempts and the failed tries of steps of the tasks with these ids. Unlike the view, a front
-- asks only their shards.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none. No pinned path, so that PostgreSQL
-- can inline it.
create or replace function queues.task_errors_of(task_ids uuid[])
returns setof queues.task_error
language sql stable
as $$ select e.* from queues.task_error e where e.task_id = any ($1) $$;

comment on function queues.task_errors_of(uuid[]) is
  'Returns the failed attempts and the failed tries of steps of the tasks with these ids.';
