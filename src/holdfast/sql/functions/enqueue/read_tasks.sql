-- Checks the elements of a batch and fills in their defaults. Errors name the position of the element if the batch,
-- whose size is given, has more than one. "alike" says that the first element represents the lane of all.
-- Internal: called by insert_tasks and insert_payloads. Locks: none.
create or replace function queues.read_tasks(
  tasks jsonb, size integer, for_process boolean, now timestamptz, max_bytes bigint,
  out requests queues.new_task[], out payloads jsonb[], out keyed boolean, out alike boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
  -- The where clause refuses invalid elements before the select list casts their values.
  select array_agg(row(g.n, g.type, d.queue, g.executor_or_default, d.priority, coalesce(g.run_at::timestamptz, now),
      d.max_attempts, g.timeout::interval, d.lease, g.idempotency_key, g.metadata, g.concurrency_key,
      -- Of these, the business process decides when it is too late, whatever was declared for the type.
      case when g.executor_or_default not in ('db_function', 'email', 'sms') then d.deadline end)::queues.new_task),
    array_agg(g.payload), bool_or(g.idempotency_key is not null),
    min(g.type) = max(g.type) and count(g.queue) = 0 and count(g.priority) = 0 and count(g.concurrency_key) = 0
  into requests, payloads, keyed, alike
  from (
    select g.n, g.element, g.type, g.queue, g.executor, g.priority, g.run_at, g.max_attempts, g.timeout, g.lease,
      g.idempotency_key, g.metadata, g.concurrency_key, coalesce(g.payload, '{}') as payload,
      case when g.payload is null then '{}' when pg_column_size(g.payload) <= 4096 then g.payload::text end
        as payload_text,
      case when g.executor is null and g.payload ? 'task_type' then queues.executor_for(null, g.payload)
        else coalesce(g.executor, 'python') end as executor_or_default,
      case when g.priority ~ '^-?[0-9]{1,3}$' then g.priority::integer end as simple_priority,
      case when g.max_attempts ~ '^[0-9]{1,4}$' then g.max_attempts::integer end as simple_max_attempts,
      -- What are_simple_options does not see. Keeps an explicit null, so that it gets the full check.
      g.element - array['type', 'queue', 'executor', case when g.payload is not null then 'payload' end,
        case when g.idempotency_key is null or jsonb_typeof(g.element -> 'idempotency_key') = 'string'
          then 'idempotency_key' end,
        case when g.priority ~ '^-?[0-9]{1,3}$' then 'priority' end,
        case when g.max_attempts ~ '^[0-9]{1,4}$' then 'max_attempts' end] as others
    from rows from (
        jsonb_to_recordset(tasks) as (type text, queue text, executor text, priority text, run_at text,
          max_attempts text, timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb,
          concurrency_key text),
        jsonb_array_elements(tasks)) with ordinality
      g(type, queue, executor, priority, run_at, max_attempts, timeout, lease, idempotency_key, payload, metadata,
        concurrency_key, element, n)
    offset 0) g
  cross join lateral queues.with_defaults(g.type, g.queue, g.priority::integer, g.max_attempts::integer,
    g.lease::interval, (g.element ->> 'deadline')::interval) d
  where g.others = '{}' and queues.is_simple_task(g.type, g.payload, g.payload_text, max_bytes)
      and queues.are_simple_options(g.queue, g.simple_priority, null, g.idempotency_key, g.simple_max_attempts, null,
        null, g.executor, null, null, now)
    or queues.check_task(g.element, g.type, g.queue, g.executor, g.priority, g.run_at, g.max_attempts, g.timeout,
      g.lease, g.idempotency_key, g.payload, g.metadata, g.concurrency_key, for_process,
      case when size > 1 then format('tasks[%s].', g.n - 1) else '' end, now);
end
$$;

comment on function queues.read_tasks(jsonb, integer, boolean, timestamptz, bigint) is
  'Checks the elements of a batch and fills in their defaults.';
