-- Returns the tasks with these ids, as far as the caller may see them. Unlike the view, a front asks only their shards.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none. No pinned path, so that PostgreSQL
-- can inline it.
create or replace function queues.tasks_of(task_ids uuid[])
returns setof queues.task_status
language sql stable
as $$ select s.* from queues.task_status s where s.task_id = any ($1) $$;

comment on function queues.tasks_of(uuid[]) is 'Returns the tasks with these ids, as far as the caller may see them.';
