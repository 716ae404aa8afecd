-- Returns the types of events that the engine itself emits. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.engine_event_types()
returns text[]
language sql immutable parallel safe
as $$
  select array['task.succeeded', 'task.failed', 'task.no_handler', 'task.dead_letter', 'task.cancelled',
    'task.retrying', 'worker.lost']
$$;

comment on function queues.engine_event_types() is 'Returns the types of events that the engine itself emits.';
