-- Enqueueing: a task and its ready row are written in the caller's transaction, one by one or as a batch. The functions
-- differ in speed and in authority only: the common single task takes the way of enqueue_simple, all others that of
-- insert_tasks, or of insert_payloads if they differ only in their payloads.
-- Invariant: a task exists if and only if the transaction that enqueued it has committed, and then it is on disk and
-- waits in a lane. A batch is inserted as a whole or not at all. An idempotency key has at most one task per type and
-- namespace. Which executors a caller may name depends on which of the inner functions it may execute.
-- Lock order: unique keys and their tasks (unique_tasks.sql), then idempotency keys by type and key. Nothing else that
-- exists is locked, and lanes are read without a lock: see lanes.sql. The first enqueue of a type by a login shares the
-- row of the lane: see add_route there.
-- At the same time: of two transactions with the same key, the second waits until the first ends, and then uses its
-- task if it asks for the same or, after a rollback, its own. Without keys, none waits for another. Two that need the
-- same new lane create two, which is harmless. Notifications are sent by the commit, so a worker that is woken finds
-- the task.
-- Explained in docs/design/enqueue.md.

-- Enqueues one task in the caller's transaction and returns its id. If a task with the same key and spec exists,
-- returns its id. Options that are not given come from the worker's declaration of the type (queues.register_types).
-- With shards, a front sends tasks with the same shard_key to the same shard; the engine itself has no use for it.
-- For holdfast_client and holdfast_process. Locks: the key.
create or replace function queues.enqueue(
  type text,
  payload jsonb default '{}',
  queue text default null,
  priority integer default null,
  run_at timestamptz default null,
  idempotency_key text default null,
  max_attempts integer default null,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null,
  concurrency_key text default null,
  shard_key text default null,
  deadline interval default null)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _task_id uuid;
begin
  if deadline is null then
    _task_id := queues.enqueue_simple(type, payload, queue, priority, run_at, idempotency_key, max_attempts, timeout,
      lease, executor, metadata, concurrency_key);
  end if;
  if _task_id is null then
    _task_id := (select e.task_id from queues.enqueue_many(jsonb_build_array(jsonb_build_object(
      'type', type, 'payload', payload, 'queue', queue, 'priority', priority, 'run_at', run_at,
      'idempotency_key', idempotency_key, 'max_attempts', max_attempts, 'timeout', extract(epoch from timeout)::text,
      'lease', extract(epoch from lease)::text, 'executor', executor, 'metadata', metadata,
      'concurrency_key', concurrency_key, 'deadline', extract(epoch from deadline)::text))) e);
  end if;
  return _task_id;
end
$$;

-- Enqueues a batch in one transaction, all or nothing, and returns the tasks in its order. The elements have the names
-- of enqueue's parameters. With payloads, which are JSON texts, the only element applies to each of them: that takes
-- less time than repeating it.
-- For holdfast_client and holdfast_process. Locks: keys in the order of (type, key). Security invoker, so that it sees
-- the actual caller and calls the function that this caller may execute.
create or replace function queues.enqueue_many(tasks jsonb, payloads text[] default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if has_function_privilege('queues.enqueue_for_process(jsonb, text[])'::regprocedure, 'execute') then
    return query select e.task_id, e.created from queues.enqueue_for_process(tasks, payloads) e;
  else
    return query select e.task_id, e.created from queues.enqueue_for_client(tasks, payloads) e;
  end if;
end
$$;

-- Enqueues a batch for holdfast_client: only executors that act with the rights of the worker. The right to execute
-- this function is the authority. PostgreSQL checks it against the current caller, also inside a business function that
-- runs with its owner's rights.
create or replace function queues.enqueue_for_client(tasks jsonb, payloads text[] default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if payloads is null then
    return query select i.task_id, i.created from queues.insert_tasks(tasks, for_process => false) i;
  else
    return query select i.task_id, i.created from queues.insert_payloads(tasks, payloads, for_process => false) i;
  end if;
end
$$;

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

-- Checks the elements of a batch and fills in their defaults. Errors name the position of the element if the batch,
-- whose size is given, has more than one. "alike" says that the first element represents the lane of all.
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

-- Returns the executor of a task: the given one, else the task_type of the payload, else python. A task_type that is
-- not an executor belongs to the application and is ignored.
create or replace function queues.executor_for(executor text, payload jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(executor,
    (select e.executor from queues.executor e
      where jsonb_typeof(payload) = 'object' and e.executor = payload ->> 'task_type'),
    'python')
$$;

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

-- Returns true if type and payload are certainly valid: an ordinary name, and a document that Python and JavaScript can
-- read, that is not too long and that names no executor. Other tasks get the full check (check_task). The text is that
-- of the payload, or null if it may be too long to render. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.is_simple_task(type text, payload jsonb, payload_text text, max_bytes bigint)
returns boolean
language sql stable parallel safe
as $$
  select type ~ '^[A-Za-z0-9_-]+(?:[.:][A-Za-z0-9_-]+)*$' and pg_catalog.octet_length(type) <= 200
    and payload_text <> 'null' and not payload ? 'task_type' and pg_catalog.octet_length(payload_text) <= max_bytes
    -- 65 levels take more than 500 bytes, and an unreadable number more than 308 digits.
    and (pg_catalog.pg_column_size(payload) <= 500
      or not pg_catalog.jsonb_path_exists(payload, 'strict $.**{65 to last}'))
    and (pg_catalog.octet_length(payload_text) <= 308 or payload_text !~ '[0-9]{60}')
$$;

-- Returns true if the options of a task are certainly valid and need no rights but those of a client. Others get the
-- full check (check_task). No pinned path, so that PostgreSQL can inline it.
create or replace function queues.are_simple_options(
  queue text, priority integer, run_at timestamptz, idempotency_key text, max_attempts integer, timeout interval,
  lease interval, executor text, metadata jsonb, concurrency_key text, now timestamptz)
returns boolean
language sql stable parallel safe
as $$
  select (queue is null or queue ~ '^[A-Za-z0-9_-]{1,200}$')
    and (priority is null or priority between -100 and 100)
    and (run_at is null or run_at between timestamptz '1970-01-01 00:00Z' and now + interval '100 years')
    and (idempotency_key is null or pg_catalog.octet_length(idempotency_key) between 1 and 500)
    and (max_attempts is null or max_attempts between 1 and 1000)
    and (timeout is null or timeout between interval '1 millisecond' and interval '30 days')
    and (lease is null or lease between interval '1 second' and interval '1 day')
    and (executor is null or executor = 'python')
    and (metadata is null or pg_catalog.jsonb_typeof(metadata) = 'object' and pg_catalog.pg_column_size(metadata) <= 250
      and pg_catalog.octet_length(metadata::text) <= 308)
    and (concurrency_key is null or pg_catalog.octet_length(concurrency_key) between 1 and 200)
$$;

-- Refuses an invalid element of a batch with an error that names the element and the field, else returns true. Scalars
-- arrive as text, so that an invalid value is refused here and not by a cast that cannot name the field. Only elements
-- that are not simple (is_simple_task, are_simple_options) are checked here.
create or replace function queues.check_task(
  element jsonb, type text, queue text, executor text, priority text, run_at text, max_attempts text,
  timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb, concurrency_key text,
  for_process boolean, place text, now timestamptz)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _options constant text[] := array['type', 'payload', 'queue', 'priority', 'run_at', 'idempotency_key', 'max_attempts',
    'timeout', 'lease', 'executor', 'metadata', 'concurrency_key', 'shard_key', 'deadline'];
  _needs_process boolean;
  _problem text;
  _odd text;
begin
  select k into _odd from jsonb_object_keys(element) k where k <> all (_options) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s is unknown', place, to_json(_odd)),
      hint = format('Allowed: %s.', array_to_string(_options, ', '));
  end if;

  if element -> 'payload' = 'null' then
    raise exception using errcode = 'QF400', message = format('%spayload must not be null', place);
  end if;
  select k into _odd
  from unnest(array['type', 'queue', 'executor', 'idempotency_key', 'run_at', 'concurrency_key', 'shard_key']) k
  where jsonb_typeof(element -> k) not in ('string', 'null') limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s must be a string', place, _odd);
  end if;

  perform queues.check_name('type', type, place);
  if queue is not null then
    perform queues.check_name('queue', queue, place);
  end if;
  executor := queues.executor_for(executor, payload);
  select e.needs_process into _needs_process from queues.executor e where e.executor = check_task.executor;
  if not found then
    raise exception using errcode = 'QF400', message = format('%sexecutor %s is unknown', place, to_json(executor)),
      hint = (select 'Allowed: ' || string_agg(e.executor, ', ' order by e.executor) || '.' from queues.executor e);
  elsif _needs_process and not for_process then
    raise exception using errcode = 'QF403',
      message = format('%sexecutor %s may be used by members of holdfast_process only', place, executor),
      hint = 'Call a function of the business process that enqueues it; its owner has holdfast_process.';
  end if;

  _problem := queues.document_problem(payload,
    (select s.value from queues.setting s where s.name = 'max_payload_bytes'));
  if _problem is not null then
    raise exception using message = format('%spayload %s', place, _problem),
      errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end,
      hint = case when _problem like '% bytes%'
        then 'Store the data elsewhere and pass a reference to it, such as an id or a path. The limit is the setting '
          'max_payload_bytes.'
        else 'Pass the value in another form, such as text.' end;
  end if;
  if metadata is not null then
    if jsonb_typeof(metadata) <> 'object' then
      raise exception using errcode = 'QF400', message = format('%smetadata must be an object', place);
    end if;
    _problem := queues.document_problem(metadata, 16384);
    if _problem is not null then
      raise exception using message = format('%smetadata %s', place, _problem),
        errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end;
    end if;
  end if;

  -- The range is small, because a claim processes the priorities in use one by one.
  if priority !~ '^[+-]?[0-9]{1,9}$' or priority::integer not between -100 and 100 then
    raise exception using errcode = 'QF400',
      message = format('%spriority %s is not a whole number between -100 and 100', place, to_json(priority));
  end if;
  if max_attempts is not null and (max_attempts !~ '^[0-9]{1,9}$' or max_attempts::integer not between 1 and 1000) then
    raise exception using errcode = 'QF400',
      message = format('%smax_attempts %s is not a whole number between 1 and 1000', place, to_json(max_attempts));
  end if;
  if run_at is not null then
    perform queues.parse_time('run_at', run_at, now, place);
  end if;
  if timeout is not null then
    perform queues.parse_duration('timeout', timeout, interval '1 millisecond', interval '30 days', place);
  end if;
  if element ->> 'deadline' is not null then
    if _needs_process then
      raise exception using errcode = 'QF400',
        message = format('%sa task of the executor %s has no deadline', place, executor),
        hint = 'Its business process decides when it is too late.';
    end if;
    perform queues.parse_duration('deadline', element ->> 'deadline', interval '1 millisecond', interval '36500 days',
      place);
  end if;
  if lease is not null then
    perform queues.parse_duration('lease', lease, interval '1 second', interval '1 day', place);
  end if;
  if idempotency_key is not null and (idempotency_key = '' or octet_length(idempotency_key) > 500) then
    raise exception using errcode = 'QF400',
      message = format('%sidempotency_key must be between 1 and 500 bytes long', place);
  end if;
  if concurrency_key is not null and (concurrency_key = '' or octet_length(concurrency_key) > 200) then
    raise exception using errcode = 'QF400',
      message = format('%sconcurrency_key must be between 1 and 200 bytes long', place);
  end if;
  return true;
end
$$;

-- Inserts one task per payload, all or nothing, and returns them in order. The only element of the batch has the type
-- and options of all. The payloads are JSON texts: each is parsed once, on its way into the table.
-- Internal: called by enqueue_for_client, enqueue_for_process and start_children. Locks: no existing rows.
create or replace function queues.insert_payloads(tasks jsonb, payloads text[], for_process boolean,
  enqueued_by text default session_user, namespace text default null)
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
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _namespace constant text := coalesce(insert_payloads.namespace, queues.namespace());
  _max_bytes constant bigint := (select s.value from queues.setting s where s.name = 'max_payload_bytes');
  _size constant integer := cardinality(payloads);
  _element constant jsonb := tasks -> 0;
  _executor constant text := _element ->> 'executor';
  -- One id is drawn per batch, because random bytes are expensive. The last 24 bits count up from a random number, so
  -- that the last digits, by which people name tasks, differ between batches.
  _prefix constant text := left(queues.new_task_id()::text, 30);
  _first constant integer := 16777216 + (random() * 8388607)::integer;
  _task queues.new_task;
  _lane_id bigint;
begin
  if jsonb_array_length(tasks) <> 1 or _element ?| array['payload', 'idempotency_key'] then
    raise exception using errcode = 'QF400',
      message = 'with payloads, tasks must have one element, without payload and idempotency_key';
  end if;
  perform queues.check_batch_size('payloads', _size);
  if _size = 0 then
    return;
  end if;

  -- With the first payload, so that of several errors the same one is raised as for a single task.
  _task := (select r.requests[1] from queues.read_tasks(
    jsonb_build_array(_element || jsonb_build_object('payload', payloads[1]::jsonb)), _size, for_process, _now,
    _max_bytes) r);
  _lane_id := queues.lane_for(_task.queue, _task.type, _task.priority,
    case when _task.concurrency_key is not null then '' end, _namespace, bounded => true);

  return query
  with told as (
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
      namespace, timeout, lease, payload, metadata, concurrency_key, deadline)
    select (_prefix || right(to_hex(_first + p.n), 6))::uuid, _now, _task.run_at, _task.priority, _task.max_attempts,
      _task.type, _task.queue,
      case when _executor is null and p.payload ? 'task_type' then queues.executor_for(null, p.payload)
        else coalesce(_executor, 'python') end,
      insert_payloads.enqueued_by, _namespace, _task.timeout, _task.lease, p.payload, _task.metadata,
      _task.concurrency_key, _task.deadline
    from (
      -- "offset 0" keeps the parsing here: once per payload. Set-returning functions in a select list run row by row,
      -- without a copy of all payloads.
      select p.written, p.n, p.written::jsonb as payload
      from (select unnest(payloads) as written, generate_series(1, _size) as n) p offset 0) p
    where queues.is_simple_payload(p.written, p.payload, _max_bytes)
      or queues.check_task(_element || jsonb_build_object('payload', p.payload), _task.type, _task.queue, _executor,
        _task.priority::text, null, _task.max_attempts::text, null, null, null, p.payload, null, null, for_process,
        case when _size > 1 then format('tasks[%s].', p.n - 1) else '' end, _now)
    returning task_id),
  waiting as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select t.task_id, _task.run_at, _lane_id, 0 from told t)
  select t.task_id, true from told t;

  if _task.run_at <= _now + interval '6 seconds' and exists (select from queues.worker w where w.idle) then
    perform queues.wake(_task.queue, _task.type, _now);
  end if;
end
$$;

-- Returns true if a payload is certainly valid: a document that Python and JavaScript can read, that is not too long
-- and that names no executor. Others get the full check (check_task). The tests of the text are chosen to be cheap. No
-- pinned path, so that PostgreSQL can inline it.
create or replace function queues.is_simple_payload(written text, payload jsonb, max_bytes bigint)
returns boolean
language sql stable parallel safe
as $$
  select (pg_catalog.starts_with(written, '{') or pg_catalog.starts_with(written, '[')) and not payload ? 'task_type'
    -- 65 levels take 130 bytes.
    and (pg_catalog.octet_length(written) < 130
      or not pg_catalog.jsonb_path_exists(payload, 'strict $.**{65 to last}'))
    and case when pg_catalog.octet_length(written) <= 300
      -- PostgreSQL writes an unreadable number with more than 308 digits.
      then pg_catalog.octet_length(payload::text) <= 308
      -- Without exponents, the spaces that PostgreSQL adds make a text longer by half at most.
      else pg_catalog.octet_length(written) <= max_bytes * 2 / 3
        and written !~ '[[,:\s][-0-9.]{25}|[[,:\s][-0-9.]+[eE]' end
$$;

-- Enqueues a batch for holdfast_process: every executor, including those with the rights of the database. The right to
-- execute this function is the authority. PostgreSQL checks it against the current caller, also inside a business
-- function that runs with its owner's rights.
create or replace function queues.enqueue_for_process(tasks jsonb, payloads text[] default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if payloads is null then
    return query select i.task_id, i.created from queues.insert_tasks(tasks, for_process => true) i;
  else
    return query select i.task_id, i.created from queues.insert_payloads(tasks, payloads, for_process => true) i;
  end if;
end
$$;

-- Inserts one task like insert_tasks, in less than half the time, and returns its id. Returns null, without inserting
-- anything, if the task is not simple (is_simple_task, are_simple_options) or its key is taken. Then the caller
-- enqueues a batch of one.
-- For holdfast_client; called by enqueue. Locks: the key.
create or replace function queues.enqueue_simple(
  type text, payload jsonb, queue text, priority integer, run_at timestamptz, idempotency_key text,
  max_attempts integer, timeout interval, lease interval, executor text, metadata jsonb, concurrency_key text)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
  _now constant timestamptz := queues.clock();
  -- Without an id, the transaction is not in the call of a function of a process.
  _in_call constant xid8 := pg_current_xact_id_if_assigned();
  -- The transaction id must exist before a lane is read: see tidy_lanes.
  _transaction_id constant xid8 := pg_current_xact_id();
  _read_committed constant boolean := current_setting('transaction_isolation') = 'read committed';
  _payload_text constant text := case when pg_column_size(payload) <= 4096 then payload::text end;
  _durable text;
  _task_id uuid;
  _missed boolean := false;
  _route record;
  _namespace text;
  _deadline interval;
  _lane_id bigint;
  _idle boolean;
begin
  -- The minimum of the setting. Under stricter isolation, only reserve_keys notices that a key was reassigned.
  if queues.is_simple_task(type, payload, _payload_text, 4096) is not true then
    return null;
  elsif num_nonnulls(queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor, metadata,
    concurrency_key) > 0
  then
    if queues.are_simple_options(queue, priority, run_at, idempotency_key, max_attempts, timeout, lease, executor,
        metadata, concurrency_key, _now) is not true
      or idempotency_key is not null and not _read_committed
    then
      return null;
    end if;
  end if;
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable := queues.commit_to_disk();
  _task_id := queues.new_task_id();

  if _in_call is not null then
    select c.namespace into _namespace from internal.call c where c.transaction_id = _in_call;
  end if;
  -- One row for all that has to be known, because each table has a cost to open.
  if _read_committed then
    select r.namespace, r.queue, r.priority, r.max_attempts, r.lease, r.deadline, r.lane_id,
      exists (select from queues.worker w where w.idle) as idle
    into _route
    from queues.route r
    where r.login = session_user::text and r.type = enqueue_simple.type
      and r.version = pg_sequence_last_value('queues.route_version')
    limit 1;
  end if;
  if _read_committed and found then
    if concurrency_key is null and (queue is null or queue = _route.queue)
      and (priority is null or priority = _route.priority)
    then
      _lane_id := _route.lane_id;
      _idle := _route.idle;
    end if;
    _namespace := coalesce(_namespace, _route.namespace);
    queue := coalesce(queue, _route.queue);
    priority := coalesce(priority, _route.priority);
    max_attempts := coalesce(max_attempts, _route.max_attempts);
    lease := coalesce(lease, _route.lease);
    _deadline := _route.deadline;
  else
    select coalesce(_namespace, n.namespace, queues.namespace_of_login(session_user::text)), d.queue, d.priority,
      d.max_attempts, d.lease, d.deadline
    into _namespace, queue, priority, max_attempts, lease, _deadline
    from (select) one
    left join queues.namespace_login n on n.login = session_user::text
    cross join lateral queues.with_defaults(type, queue, priority, max_attempts, lease, null) d;
    _missed := _read_committed;
  end if;
  run_at := coalesce(run_at, _now);

  if idempotency_key is not null then
    insert into queues.task_key (type, idempotency_key, namespace, task_id)
    values (type, idempotency_key, _namespace, _task_id) on conflict do nothing;
    if not found then
      return null;
    end if;
  end if;

  if _lane_id is null and concurrency_key is null and _read_committed then
    select l.lane_id, exists (select from queues.worker w where w.idle) into _lane_id, _idle
    from queues.lane l
    where l.queue = enqueue_simple.queue and l.type = enqueue_simple.type and l.priority = enqueue_simple.priority
      and l.concurrency_key is null and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  end if;
  if _lane_id is null then
    _lane_id := queues.lane_for(queue, type, priority, concurrency_key, _namespace, bounded => true);
    _idle := true;
  end if;
  if _missed then
    perform queues.add_route(type);
  end if;

  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by,
    namespace, idempotency_key, timeout, lease, payload, metadata, concurrency_key, deadline)
  values (_task_id, _now, run_at, priority, max_attempts, type, queue, 'python', session_user,
    _namespace, idempotency_key, timeout, lease, payload, metadata, concurrency_key, _deadline);
  insert into queues.ready (task_id, run_at, lane_id, attempt) values (_task_id, run_at, _lane_id, 0);
  -- An idle worker looks every five seconds.
  if _idle and run_at <= _now + interval '6 seconds' then
    perform queues.wake(queue, type, _now);
  end if;
  return _task_id;
end
$$;

-- Returns the SHA-256 of the canonical spec {type, executor, payload}: the same from every client. jsonb normalizes
-- keys, white space and escapes. Writes the text of jsonb_build_object('type', …, 'executor', …, 'payload', …) in a
-- quarter of the time. Not stored, because it is rarely needed. Stable, because to_json is, and without a pinned path,
-- so that PostgreSQL can inline it.
create or replace function queues.spec_hash(type text, executor text, payload jsonb)
returns bytea
language sql stable parallel safe
as $$
  select pg_catalog.sha256(pg_catalog.convert_to(
    '{"type": ' || pg_catalog.to_json(type)::text || ', "payload": ' || payload::text
    || ', "executor": ' || pg_catalog.to_json(executor)::text || '}', 'UTF8'))
$$;
