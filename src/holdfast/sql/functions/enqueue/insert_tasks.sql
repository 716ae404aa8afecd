-- Inserts a batch, all or nothing, and returns the tasks in its order.
-- Internal: called by enqueue_for_client and enqueue_for_process. Locks: keys in the order of (type, key), and no other
-- existing rows.
create or replace function queues.insert_tasks(tasks jsonb, for_process boolean, enqueued_by text default session_user,
  namespace text default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('tasks', tasks);
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _size constant integer := jsonb_array_length(tasks);
  _namespace constant text := coalesce(insert_tasks.namespace, queues.namespace());
  _max_bytes bigint;
  _first_id uuid;
  _batch queues.new_task[];
  _kinds queues.new_task[];
  _alike boolean;
  _keyed boolean;
  _holders uuid[];
  _made integer;
  _made_keyed integer;
begin
  _max_bytes := (select s.value from queues.setting s where s.name = 'max_payload_bytes');
  -- One id is drawn per batch, because random bytes are expensive; the elements count up from it.
  _first_id := queues.new_task_id();

  -- The where clause refuses invalid elements before the select list casts their values.
  select array_agg(row(g.n, queues.nth_task_id(_first_id, g.n), g.type, coalesce(g.queue, d.queue, split_part(split_part(g.type, '.', 1), ':', 1)),
      g.executor, coalesce(g.priority::integer, d.priority, 0), coalesce(g.run_at::timestamptz, _now),
      coalesce(g.max_attempts::integer, d.max_attempts, 3), g.timeout::interval, coalesce(g.lease::interval, d.lease), g.idempotency_key, g.payload, g.metadata, g.concurrency_key)::queues.new_task),
    bool_or(g.idempotency_key is not null),
    min(g.type) = max(g.type) and count(g.queue) = 0 and count(g.priority) = 0 and count(g.concurrency_key) = 0
  into _batch, _keyed, _alike
  from (
    select g.n, g.element, g.type, g.queue, g.priority, g.run_at, g.max_attempts, g.timeout, g.lease, g.idempotency_key, g.metadata, g.concurrency_key,
      coalesce(g.payload, '{}') as payload, queues.text_of_plain(coalesce(g.payload, '{}')) as payload_text,
      case when g.executor is null and g.payload ? 'task_type' then queues.executor_for(null, g.payload)
        else coalesce(g.executor, 'python') end as executor,
      -- Keeps an explicit null, so that it is refused.
      g.element - array['type', 'queue', 'executor',
        case when g.idempotency_key is null or jsonb_typeof(g.element -> 'idempotency_key') = 'string' then 'idempotency_key' end, case when g.payload is not null then 'payload' end,
        case when g.priority is not null then 'priority' end, case when g.max_attempts is not null then 'max_attempts' end] as others
    from rows from (
        jsonb_to_recordset(tasks) as (type text, queue text, executor text, priority text, run_at text, max_attempts text,
          timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb, concurrency_key text),
        jsonb_array_elements(tasks)) with ordinality
      g(type, queue, executor, priority, run_at, max_attempts, timeout, lease, idempotency_key, payload, metadata, concurrency_key, element, n)
    offset 0) g
  left join queues.task_type d on d.type = g.type
  where queues.looks_right(g.type, g.queue, g.executor, g.priority, g.max_attempts, g.idempotency_key, g.others,
      g.payload_text, _max_bytes)
    or queues.check_task(g.element, g.type, g.queue, g.executor, g.priority, g.run_at, g.max_attempts, g.timeout, g.lease,
      g.idempotency_key, g.payload, g.metadata, g.concurrency_key, for_process, case when _size > 1 then format('tasks[%s].', g.n - 1) else '' end, _now);
  if _batch is null then
    return;
  end if;

  -- Most batches have one type and equal options, so the first task represents all. "offset 0" keeps the lane lookup
  -- above the distinct: one per lane, not one per task.
  _kinds := case when _alike then _batch[1:1] else _batch end;
  with made as (
    insert into queues.lane (made_at, priority, queue, type, concurrency_key, namespace)
    select _now, b.priority, b.queue, b.type, b.concurrency_key, _namespace
    from (select distinct b.queue, b.type, b.priority, b.concurrency_key from unnest(_kinds) b offset 0) b
    where queues.find_lane(b.queue, b.type, b.priority, b.concurrency_key, _namespace) is null
    returning concurrency_key)
  select count(*) filter (where m.concurrency_key is null), count(m.concurrency_key) into _made, _made_keyed from made m;
  if _made > 0 then
    perform queues.check_lanes(_namespace, _made, keyed => false);
  end if;
  if _made_keyed > 0 then
    perform queues.check_lanes(_namespace, _made_keyed, keyed => true);
  end if;

  if _keyed then
    _holders := queues.hold_keys(_batch, _namespace);
  end if;

  return query
  with asked as materialized (
    select b.*, coalesce(_holders[b.n], b.task_id) as holder from unnest(_batch) b),
  lanes as materialized (
    select d.queue, d.type, d.priority, d.concurrency_key, queues.find_lane(d.queue, d.type, d.priority, d.concurrency_key, _namespace) as lane_id
    from (select distinct b.queue, b.type, b.priority, b.concurrency_key from unnest(_kinds) b) d),
  told as (
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by, namespace,
      idempotency_key, timeout, lease, payload, metadata, concurrency_key)
    select a.task_id, _now, a.run_at, a.priority, a.max_attempts, a.type, a.queue, a.executor, insert_tasks.enqueued_by, _namespace,
      a.idempotency_key, a.timeout, a.lease, a.payload, a.metadata, a.concurrency_key
    from asked a where a.holder = a.task_id),
  waiting as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select a.task_id, a.run_at, l.lane_id, 0
    from asked a join lanes l on l.queue = a.queue and l.type = a.type and l.priority = a.priority
      and coalesce(l.concurrency_key, '') = coalesce(a.concurrency_key, '')
    where a.holder = a.task_id)
  select a.holder, a.holder = a.task_id from asked a order by a.n;

  perform queues.wake(_batch, _now);
end
$$;

comment on function queues.insert_tasks(jsonb, boolean, text, text) is
  'Inserts a batch, all or nothing, and returns the tasks in its order.';
