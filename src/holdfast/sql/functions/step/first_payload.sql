-- Returns the payload with which a task was enqueued: that of its first generation.
-- Internal: called by reserve_keys and replay. Locks: none.
create or replace function queues.first_payload(task_id uuid)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when t.generation is null then t.payload else (
    select g.payload from queues.generation g where g.task_id = t.task_id and g.number = 1) end
  from queues.task t where t.task_id = first_payload.task_id
$$;

comment on function queues.first_payload(uuid) is 'Returns the payload with which a task was enqueued.';
