-- Inserts a batch, all or nothing, and returns the tasks in its order.
-- Internal: called by enqueue_for_client and enqueue_for_process. Locks: keys in the order of (type, key), and no other
-- existing rows.
create or replace function queues.insert_tasks(tasks jsonb, for_process boolean,
  enqueued_by text default session_user, namespace text default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set work_mem = '32MB'
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('tasks', tasks);
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _namespace constant text := coalesce(insert_tasks.namespace, queues.namespace());
  _max_bytes constant bigint := (select s.value from queues.setting s where s.name = 'max_payload_bytes');
  _size constant integer := jsonb_array_length(tasks);
  -- The last 24 bits of the ids count up from it: see insert_payloads.
  _first constant integer := 16777216 + (random() * 8388607)::integer;
  _prefix text;
  _payloads jsonb[];
  _requests queues.new_task[];
  _kinds queues.new_task[];
  _alike boolean;
  _keyed boolean;
  _ids uuid[];
  _holders uuid[];
begin
  if jsonb_path_exists(tasks, '$[*] ? (exists (@.after) || exists (@.unique) || exists (@.debounce)
    || exists (@.when) || exists (@.debounce_max))')
  then
    return query
    select i.task_id, i.created from queues.insert_arranged(tasks, for_process, enqueued_by, namespace) i;
    return;
  end if;
  select r.requests, r.payloads, r.keyed, r.alike into _requests, _payloads, _keyed, _alike
  from queues.read_tasks(tasks, _size, for_process, _now, _max_bytes) r;
  if _size = 0 then
    return;
  end if;

  -- Most batches have one type and equal options, so the first task represents all.
  _kinds := case when _alike then _requests[1:1] else _requests end;
  -- One id is drawn per batch, because random bytes are expensive; the elements count up from it.
  _prefix := left(queues.new_task_id()::text, 30);
  _ids := array(select (_prefix || right(to_hex(_first + n), 6))::uuid from generate_series(1, _size) n);
  if _keyed then
    _holders := queues.reserve_keys(_requests, _payloads, _ids, _namespace);
  end if;

  return query
  with lane as materialized (
    -- "offset 0" keeps the lookup above the distinct: one per lane, not one per task.
    select d.queue, d.type, d.priority, d.keyed,
      queues.lane_for(
        d.queue, d.type, d.priority, case when d.keyed then '' end, _namespace, bounded => true) as lane_id
    from (
      select distinct r.queue, r.type, r.priority, r.concurrency_key is not null as keyed
      from unnest(_kinds) r offset 0) d),
  told as (
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
      namespace, idempotency_key, timeout, lease, payload, metadata, concurrency_key, deadline)
    select a.task_id, _now, (a.r).run_at, (a.r).priority, (a.r).max_attempts, (a.r).type, (a.r).queue, (a.r).executor,
      insert_tasks.enqueued_by, _namespace, (a.r).idempotency_key, (a.r).timeout, (a.r).lease, a.payload,
      (a.r).metadata, (a.r).concurrency_key, (a.r).deadline
    from (select unnest(_ids) as task_id, unnest(_holders) as holder, unnest(_requests) as r,
      unnest(_payloads) as payload) a
    where a.holder is null or a.holder = a.task_id),
  waiting as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select a.task_id, (a.r).run_at, l.lane_id, 0
    from (select unnest(_ids) as task_id, unnest(_holders) as holder, unnest(_requests) as r) a
    join lane l on l.queue = (a.r).queue and l.type = (a.r).type and l.priority = (a.r).priority
      and l.keyed = ((a.r).concurrency_key is not null)
    where a.holder is null or a.holder = a.task_id)
  select coalesce(a.holder, a.task_id), a.holder is null or a.holder = a.task_id
  from (select unnest(_ids) as task_id, unnest(_holders) as holder) a;

  if exists (select from queues.worker w where w.idle) then
    perform queues.wake(due.queue, due.type, _now)
    from (
      select distinct (a.r).queue, (a.r).type
      from (select unnest(_ids) as task_id, unnest(_holders) as holder, unnest(_requests) as r) a
      where (a.r).run_at <= _now + interval '6 seconds' and (a.holder is null or a.holder = a.task_id)) due;
  end if;
end
$$;

comment on function queues.insert_tasks(jsonb, boolean, text, text) is
  'Inserts a batch, all or nothing, and returns the tasks in its order.';
