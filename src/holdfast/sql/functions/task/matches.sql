-- Returns whether a task matches the filters of a listing. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.matches(task queues.task, queue text, type_prefix text, since timestamptz,
  namespace text, spec_hash bytea default null, wanted queues.wanted_text default null)
returns boolean
language sql stable
as $$
  select (queue is null or task.queue = queue)
    and (type_prefix is null or pg_catalog.starts_with(task.type, type_prefix))
    and (since is null or task.created_at >= since)
    and (namespace is null or task.namespace = namespace)
    and (spec_hash is null or queues.spec_hash(task.type, task.executor, task.payload) = spec_hash)
    and (wanted is null or queues.contains(task, wanted))
$$;

comment on function queues.matches(queues.task, text, text, timestamptz, text, bytea, queues.wanted_text) is
  'Returns whether a task matches the filters of a listing.';
