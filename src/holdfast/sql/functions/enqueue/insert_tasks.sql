-- Inserts a batch, all or nothing, and answers in its order. Behind enqueue_for_client and enqueue_for_process; nobody else may call it.
-- Locks: keys in the order of (type, key); nothing else that exists already.
create or replace function queues.insert_tasks(tasks jsonb, for_process boolean)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _batch queues.new_task[];
  _holders uuid[];
  _keyed boolean;
begin
  perform queues.check_batch('tasks', tasks);
  -- Acknowledged means on disk, whatever the caller's session says. A setting of the function would end before the commit.
  perform set_config('synchronous_commit', 'on', true);

  select array_agg(parsed.task order by (parsed.task).n), bool_or(parsed.keyed) into _batch, _keyed
  from (
    select queues.parse_task(
        g.n::integer, g.type, g.queue, g.executor, g.priority, g.run_at, g.max_attempts, g.timeout, g.lease,
        g.idempotency_key, g.payload, g.metadata, for_process,
        case when b.size > 1 then format('tasks[%s].', g.n - 1) else '' end, _now, b.max_payload_bytes) as task,
      g.idempotency_key is not null as keyed
    from rows from (jsonb_to_recordset(tasks) as (
        type text, queue text, executor text, priority text, run_at text, max_attempts text, timeout text, lease text,
        idempotency_key text, payload jsonb, metadata jsonb)) with ordinality
      g(type, queue, executor, priority, run_at, max_attempts, timeout, lease, idempotency_key, payload, metadata, n)
    cross join (select jsonb_array_length(tasks) as size,
      (select value from queues.setting where name = 'max_payload_bytes') as max_payload_bytes) b
    offset 0) parsed;
  if _batch is null then
    return;
  end if;

  insert into queues.lane (queue, type, priority)
  select distinct b.queue, b.type, b.priority from unnest(_batch) b
  where not exists (
    select from queues.lane l where l.queue = b.queue and l.type = b.type and l.priority = b.priority);

  if _keyed then
    _holders := queues.hold_keys(_batch);
  end if;

  return query
  with asked as materialized (
    select b.*, coalesce(_holders[b.n], b.task_id) as holder from unnest(_batch) b),
  told as (
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
      idempotency_key, timeout, lease, spec_hash, payload, metadata)
    select a.task_id, _now, a.run_at, a.priority, a.max_attempts, a.type, a.queue, a.executor, session_user,
      a.idempotency_key, a.timeout, a.lease, a.spec_hash, a.payload, a.metadata
    from asked a where a.holder = a.task_id),
  waiting as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select a.task_id, a.run_at, (
      select l.lane_id from queues.lane l
      where l.queue = a.queue and l.type = a.type and l.priority = a.priority
      order by l.queue, l.type, l.priority, l.lane_id limit 1), 0
    from asked a where a.holder = a.task_id)
  select a.holder, a.holder = a.task_id from asked a order by a.n;

  perform queues.wake(_batch, _now);
end
$$;

comment on function queues.insert_tasks(jsonb, boolean) is
  'Inserts a batch, all or nothing, and answers in its order. Behind the two functions that say who may enqueue what.';
