-- Enqueues a run of the supervisor of a send, and returns the task. The first run has no number in its payload.
-- Internal: called with the rights of the owner, which may enqueue a db_function.
create or replace function comms.enqueue_supervisor(
  channel text, send_task_id bigint, run_at timestamptz, run integer default null)
returns uuid
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select queues.enqueue(s.name, run_at => enqueue_supervisor.run_at, max_attempts => 25,
    payload => jsonb_strip_nulls(jsonb_build_object('task_type', 'db_function', 'db_function', s.name,
      'send_' || channel || '_task_id', send_task_id, 'run', run)))
  from (select 'comms.send_' || channel || '_supervisor' as name) s
$$;

comment on function comms.enqueue_supervisor(text, bigint, timestamptz, integer) is
  'Enqueues a run of the supervisor of a send, and returns the task.';
