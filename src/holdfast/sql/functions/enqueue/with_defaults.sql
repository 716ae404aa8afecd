-- Returns the options of a task that have defaults: as given, as declared for its type, or the engine's own. No pinned
-- path, so that PostgreSQL can inline it.
create or replace function queues.with_defaults(
  task_type text, given_queue text, given_priority integer, given_max_attempts integer, given_lease interval,
  given_deadline interval)
returns table (queue text, priority integer, max_attempts integer, lease interval, deadline interval)
language sql stable parallel safe
as $$
  select coalesce(given_queue, d.queue, pg_catalog.split_part(pg_catalog.split_part(task_type, '.', 1), ':', 1)),
    coalesce(given_priority, d.priority, 0), coalesce(given_max_attempts, d.max_attempts, 3),
    coalesce(given_lease, d.lease), coalesce(given_deadline, d.deadline)
  from (select) one left join queues.task_type d on d.type = task_type
$$;

comment on function queues.with_defaults(text, text, integer, integer, interval, interval) is
  'Returns the options of a task that have defaults: as given, as declared for its type, or the engine''s own.';
