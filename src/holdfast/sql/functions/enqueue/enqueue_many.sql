-- Enqueues a batch in one transaction, all or nothing, and answers in its order. The elements have the keys of enqueue's
-- parameters. For holdfast_client and holdfast_process. Locks: keys in the order of (type, key).
-- Security invoker, so that it can see who really calls and take the way that caller may take.
create or replace function queues.enqueue_many(tasks jsonb)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _odd text;
begin
  if jsonb_typeof(tasks) = 'array' then
    select coalesce(
        case when jsonb_typeof(t.element) <> 'object' then format('tasks[%s] must be an object', t.n - 1) end,
        (select format('tasks[%s] has an unknown member %s', t.n - 1, to_json(k))
         from jsonb_object_keys(t.element - array['type', 'payload', 'queue', 'priority', 'run_at', 'idempotency_key',
           'max_attempts', 'timeout', 'lease', 'executor', 'metadata']) k limit 1),
        format('tasks[%s].payload must not be null', t.n - 1))
    into _odd
    from jsonb_array_elements(tasks) with ordinality t(element, n)
    where jsonb_typeof(t.element) <> 'object'
       or t.element - array['type', 'payload', 'queue', 'priority', 'run_at', 'idempotency_key',
            'max_attempts', 'timeout', 'lease', 'executor', 'metadata'] <> '{}'
       or t.element -> 'payload' = 'null'
    limit 1;
    if _odd is not null then
      raise exception using errcode = 'QF400', message = _odd;
    end if;
  end if;

  if has_function_privilege('queues.enqueue_for_process(jsonb)', 'execute') then
    return query select e.task_id, e.created from queues.enqueue_for_process(tasks) e;
  else
    return query select e.task_id, e.created from queues.enqueue_for_client(tasks) e;
  end if;
end
$$;

comment on function queues.enqueue_many(jsonb) is
  'Enqueues a batch in one transaction, all or nothing, and answers in its order.';
