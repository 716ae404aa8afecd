-- Declares the types that a worker handles. Tasks that do not set queue, priority, max_attempts, lease or deadline get
-- those of the newest declaration; timeout and executor are applied by the worker, which enforces the isolation that
-- its handler declares. A declaration changes no existing task, and cannot name an executor that acts with the rights
-- of the database: the caller that enqueues a task decides with which rights it runs.
-- For holdfast_worker. Locks: the types' rows, in their order.
create or replace function queues.register_types(types jsonb)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('types', types);
  _now constant timestamptz := queues.clock();
  _most constant integer := 10000;
  _max_schema_bytes constant integer := 65536;
  _odd text;
  _changed integer;
begin
  select k into _odd from jsonb_array_elements(types) e, jsonb_object_keys(e) k
  where k <> all (array['type', 'queue', 'priority', 'max_attempts', 'timeout', 'deadline', 'lease', 'executor',
    'schema']) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('types: %s is unknown', to_json(_odd)),
      hint = 'Allowed: type, queue, priority, max_attempts, timeout, deadline, lease, executor, schema.';
  end if;

  select e.n - 1 into _odd from jsonb_array_elements(types) with ordinality e(element, n)
  where jsonb_typeof(e.element -> 'schema') <> 'object'
    or octet_length((e.element -> 'schema')::text) > _max_schema_bytes
  limit 1;
  if found then
    raise exception using errcode = 'QF400',
      message = format('types[%s].schema is not an object of at most %s bytes', _odd, _max_schema_bytes);
  end if;

  -- The where clause refuses invalid elements before the select list casts their values.
  insert into queues.task_type as d (type, queue, priority, max_attempts, timeout, deadline, lease, executor, schema,
    registered_at, registered_by)
  select distinct on (e.type collate "C") e.type, e.queue, coalesce(e.priority::integer, 0),
    coalesce(e.max_attempts::integer, 3), e.timeout::interval, (e.element ->> 'deadline')::interval, e.lease::interval,
    coalesce(e.executor, 'python'), e.schema, _now, session_user
  from (
    select g.* from rows from (
      jsonb_to_recordset(types) as (type text, queue text, priority text, max_attempts text, timeout text, lease text,
        executor text, schema jsonb),
      jsonb_array_elements(types)) with ordinality
      g(type, queue, priority, max_attempts, timeout, lease, executor, schema, element, n)
    offset 0) e
  where queues.check_task(e.element - 'schema', e.type, e.queue, coalesce(e.executor, 'python'), e.priority, null,
    e.max_attempts, e.timeout, e.lease, null, '{}', null, null, false, format('types[%s].', e.n - 1), _now)
  order by e.type collate "C", e.n desc
  on conflict (type) do update
  set queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
    timeout = excluded.timeout, deadline = excluded.deadline, lease = excluded.lease, executor = excluded.executor,
    schema = excluded.schema, registered_at = excluded.registered_at, registered_by = excluded.registered_by
  where (d.queue, d.priority, d.max_attempts, d.timeout, d.deadline, d.lease, d.executor, d.schema) is distinct from
    (excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout, excluded.deadline, excluded.lease,
      excluded.executor, excluded.schema);
  get diagnostics _changed = row_count;

  if (select count(*) from queues.task_type) > _most then
    raise exception using errcode = 'QF400', message = format('more than %s types would be registered', _most),
      hint = 'Types are kinds of work: put data that differs from task to task into the payload.';
  end if;
  return _changed;
end
$$;

comment on function queues.register_types(jsonb) is
  'Declares the types that a worker handles, with the defaults of their tasks.';
