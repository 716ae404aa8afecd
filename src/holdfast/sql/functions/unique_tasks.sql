-- Enqueueing what may be there already, in two ways: an idempotency key names one request; a unique or debounced key
-- names the last task that was enqueued with it. For a deterministic task whose result can be used again, that key is
-- the hash of its spec, and its type is empty, as that is part of the spec.
-- Invariant: while a transaction holds the row of a key, no other one decides on it, so two enqueues never both find
-- nothing. Keys belong to a namespace. A waiting task that a unique key has found is not claimed before the caller's
-- transaction ends.
-- Lock order: keys of unique tasks by type and key; for each, the ready row of its task, by lock_task; then idempotency
-- keys by type and key. All of them wait.
-- At the same time: the second enqueue of a key waits for the first, and then reads again in a statement of its own. If
-- the first was rolled back, the key is free. A debounced enqueue does not wait for a worker that holds the former
-- task: it records that this task is replaced, and if it comes back without having begun, cancel_replaced cancels it.
-- If it comes back in the same moment, it stays, and is due before the new one.
-- Explained in docs/design/enqueue.md.

-- Enqueues a task unless one with the same type and key is there already, and returns it, or that one. With unique
-- waiting, one that has not begun counts; with unfinished, one that has not ended. With succeeded, the spec is the key,
-- and a run that has succeeded counts; with active, also one that is not finished. With debounce, one that has not
-- begun is replaced: the new one runs after this time, and at the latest debounce_max after the first one was enqueued.
-- Keys belong to a namespace. A task that was found waiting is not claimed before the caller's transaction ends, so it
-- sees its changes.
-- For holdfast_client and holdfast_process. Locks: the row of the key, then the ready row; then as enqueue_many.
-- Security invoker, so that the rights of the actual caller apply.
create or replace function queues.enqueue_unique(
  type text,
  payload jsonb default '{}',
  key text default null,
  "unique" text default null,
  debounce interval default null,
  debounce_max interval default null,
  queue text default null,
  priority integer default null,
  run_at timestamptz default null,
  max_attempts integer default null,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null,
  concurrency_key text default null,
  shard_key text default null,
  deadline interval default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if num_nonnulls("unique", debounce) = 0 then
    raise exception using errcode = 'QF400',
      message = 'give either unique, which is waiting, unfinished, succeeded or active, or debounce';
  end if;
  return query
  select e.task_id, e.created from queues.enqueue_many(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
    'type', type, 'queue', queue, 'priority', priority, 'run_at', run_at, 'idempotency_key', key,
    'max_attempts', max_attempts, 'timeout', extract(epoch from timeout)::text,
    'lease', extract(epoch from lease)::text,
    'deadline', extract(epoch from deadline)::text, 'executor', executor, 'concurrency_key', concurrency_key,
    'unique', "unique", 'debounce', extract(epoch from debounce)::text,
    'debounce_max', extract(epoch from debounce_max)::text))
    || jsonb_build_object('payload', payload)
    || case when metadata is null then '{}' else jsonb_build_object('metadata', metadata) end)) e;
end
$$;

-- Returns the task for each request of a batch: a new one with the given id, or the one that already has its key in the
-- namespace. If an open transaction holds the key, waits for it; if that transaction rolls back, this one gets the key.
-- Internal: called by insert_tasks. Locks: keys, in the order of (type, key).
create or replace function queues.reserve_keys(
  requests queues.new_task[], payloads jsonb[], ids uuid[], namespace text)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _holders uuid[];
  _missing integer;
  _new integer;
  _inserted integer := 0;
  _own integer;
  _conflict record;
begin
  for _try in 1..10 loop
    insert into queues.task_key (type, idempotency_key, namespace, task_id)
    select distinct on (r.type, r.idempotency_key) r.type, r.idempotency_key, reserve_keys.namespace, ids[r.n]
    from unnest(requests) r
    where r.idempotency_key is not null
    order by r.type, r.idempotency_key, r.n
    on conflict do nothing;
    get diagnostics _new = row_count;
    _inserted := _inserted + _new;

    -- A separate statement, so that it sees what other transactions committed during the wait.
    select array_agg(case when r.idempotency_key is null then ids[r.n] else k.task_id end order by r.n),
           count(*) filter (where r.idempotency_key is not null and k.task_id is null),
           count(*) filter (where k.task_id = ids[r.n])
    into _holders, _missing, _own
    from unnest(requests) r
    left join lateral (
      select k.task_id from queues.task_key k
      where k.type = r.type and k.idempotency_key = r.idempotency_key and k.namespace = reserve_keys.namespace
      offset 0) k on true;
    exit when _missing = 0;
  end loop;
  -- A snapshot from before the key was freed shows the former holder beside the row just inserted.
  if _own < _inserted or cardinality(_holders) > cardinality(requests) then
    raise exception using errcode = '40001',
      message = 'an idempotency key was reassigned since this transaction began; try again';
  end if;
  if _missing > 0 then
    raise exception using errcode = 'QF503', message = 'an idempotency key is reassigned too often; try again';
  end if;

  if _own < (select count(r.idempotency_key) from unnest(requests) r) then
    with asked as materialized (
      select (a.r).n, (a.r).type, (a.r).idempotency_key, (a.r).executor, a.task_id, a.holder, a.payload
      from (select unnest(requests) as r, unnest(ids) as task_id, unnest(_holders) as holder,
        unnest(payloads) as payload) a)
    select a.type, a.idempotency_key, a.holder into _conflict
    from asked a
    left join asked sibling on sibling.task_id = a.holder
    left join lateral (
      select t.executor, queues.first_payload(t.task_id) as payload from queues.task t
      where t.task_id = a.holder offset 0) t on true
    where a.holder <> a.task_id and (a.executor, a.payload::text)
      is distinct from (coalesce(sibling.executor, t.executor), coalesce(sibling.payload, t.payload)::text)
    order by a.n limit 1;
    if found then
      raise exception using errcode = 'QF409',
        message = format(
          'idempotency_key %s of type %s already belongs to task %s, which has another payload or executor',
          to_json(_conflict.idempotency_key), _conflict.type, _conflict.holder),
        hint = 'A key identifies one request: use another key, or send the same payload.';
    end if;
  end if;
  return _holders;
end
$$;

-- Inserts a batch like insert_tasks, of which some tasks come after others, or are unique or debounced. The
-- idempotency_key of a unique or debounced task is its key among those, or else the hash of its spec. If several of one
-- batch have one type and key, they are one task: the last one if it is debounced, else the first.
-- Internal: called by insert_tasks. Locks: the keys of unique tasks in the order of (type, key), and ready rows of
-- those that hold them; then as insert_tasks.
create or replace function queues.insert_arranged(tasks jsonb, for_process boolean, enqueued_by text, namespace text)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _options constant text[] := array['after', 'when', 'unique', 'debounce', 'debounce_max'];
  _size constant integer := jsonb_array_length(tasks);
  _elements jsonb[] := array(
    select e.element - array(select k from unnest(_options) k where e.element -> k = 'null')
    from jsonb_array_elements(tasks) with ordinality e(element, n) order by e.n);
  _winners integer[] := array(select generate_series(1, _size));
  _held uuid[] := array_fill(null::uuid, array[_size]);
  _keys text[] := array_fill(null::text, array[_size]);
  _by_spec boolean[] := array(
    select coalesce(e.element ->> 'unique' in ('succeeded', 'active'), false)
    from unnest(_elements) with ordinality e(element, n) order by e.n);
  _inserted integer[];
  _one record;
  _found record;
begin
  for _one in select n from generate_series(1, _size) n where _elements[n] ?| _options loop
    perform queues.check_arrangement(_elements[_one.n], case when _size > 1 then format('tasks[%s].', _one.n - 1)
      else '' end);
  end loop;
  if _size > 1 or _by_spec[1] then
    -- All of them, so that an error names the place in this batch, whichever of them are inserted in the end. Also
    -- before the hash of a spec is computed.
    perform queues.read_tasks(
      (select jsonb_agg(e.element - _options order by e.n) from unnest(_elements) with ordinality e(element, n)),
      _size, for_process, queues.clock(), (select s.value from queues.setting s where s.name = 'max_payload_bytes'));
  end if;
  -- In the order of the keys, so that two batches do not wait for each other.
  for _one in
    select g.type, g.key, array_agg(g.n order by g.n) as places,
      case when bool_or(g.debounced) then max(g.n) else min(g.n) end as winner
    from (
      select n, case when _by_spec[n] then '' else _elements[n] ->> 'type' end as type, case
          when _by_spec[n] then encode(queues.spec_hash(_elements[n] ->> 'type',
            queues.executor_for(_elements[n] ->> 'executor', coalesce(_elements[n] -> 'payload', '{}')),
            coalesce(_elements[n] -> 'payload', '{}')), 'hex')
          else _elements[n] ->> 'idempotency_key' end as key,
        _elements[n] ? 'debounce' as debounced
      from generate_series(1, _size) n where _elements[n] ?| array['unique', 'debounce']) g
    group by g.type, g.key order by g.type collate "C", g.key collate "C"
  loop
    select f.task_id, f.run_at into _found from queues.find_unique(_one.type, _one.key,
      _elements[_one.winner] ->> 'unique', (_elements[_one.winner] ->> 'debounce')::interval,
      (_elements[_one.winner] ->> 'debounce_max')::interval, namespace) f;
    for _place in 1..cardinality(_one.places) loop
      _winners[_one.places[_place]] := _one.winner;
    end loop;
    _held[_one.winner] := _found.task_id;
    _keys[_one.winner] := _one.key;
    _elements[_one.winner] := _elements[_one.winner] - 'idempotency_key' || case
      when _found.run_at is null then '{}' else jsonb_build_object('run_at', _found.run_at) end;
  end loop;

  _inserted := array(select n from generate_series(1, _size) n where _winners[n] = n and _held[n] is null);
  for _one in
    select i.task_id, i.created, _inserted[i.n] as place from queues.insert_tasks(
      (select coalesce(jsonb_agg(_elements[p.n] - _options order by p.place), '[]')
        from unnest(_inserted) with ordinality p(n, place)),
      for_process, enqueued_by, namespace) with ordinality i(task_id, created, n)
  loop
    _held[_one.place] := _one.task_id;
    if _elements[_one.place] ?| array['unique', 'debounce'] then
      perform queues.store_unique(_one.task_id, _keys[_one.place], _by_spec[_one.place]);
    elsif not _one.created then
      _inserted := array_remove(_inserted, _one.place);
    end if;
  end loop;
  perform queues.hold_back(g.task_ids, g.after, g.condition, namespace)
  from (
    select array_agg(_held[p.n] order by p.n) as task_ids,
      array(select a::uuid from jsonb_array_elements_text(_elements[min(p.n)] -> 'after') a) as after,
      coalesce(_elements[min(p.n)] ->> 'when', 'succeeded') as condition
    from unnest(_inserted) p(n) where _elements[p.n] ? 'after'
    group by _elements[p.n] -> 'after', _elements[p.n] ->> 'when') g;
  return query select _held[_winners[n]], n = any (_inserted) from generate_series(1, _size) n;
end
$$;

-- Refuses an element of a batch whose options after, when, unique, debounce and debounce_max are invalid or do not go
-- together. The place names the element in errors.
create or replace function queues.check_arrangement(element jsonb, place text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  _unique constant boolean := element ?| array['unique', 'debounce'];
  _uuid constant text := '^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$';
  _problem text;
begin
  _problem := case
    when element ? 'after' and (jsonb_typeof(element -> 'after') <> 'array' or exists (
        select from jsonb_array_elements(case jsonb_typeof(element -> 'after') when 'array' then element -> 'after'
          else '[]' end) a(id) where jsonb_typeof(a.id) <> 'string' or a.id #>> '{}' !~ _uuid))
      then 'after must be an array of task ids'
    when element ? 'when' and not element ? 'after' then 'when needs after'
    when element ->> 'when' not in ('succeeded', 'ended')
      then format('when is %s: expected succeeded or ended', element -> 'when')
    when element ->> 'unique' not in ('waiting', 'unfinished', 'succeeded', 'active')
      then format('unique is %s: expected waiting, unfinished, succeeded or active', element -> 'unique')
    when element ?& array['unique', 'debounce'] then 'give either unique or debounce'
    when element ? 'debounce_max' and not element ? 'debounce' then 'debounce_max needs debounce'
    when element ? 'after' and _unique then 'a task that comes after others cannot be unique or debounced'
    when element ->> 'unique' in ('succeeded', 'active') then case when element ? 'idempotency_key'
      then format('unique is %s, which takes the spec as key: leave the key out', element -> 'unique') end
    when _unique and jsonb_typeof(element -> 'idempotency_key') is distinct from 'string'
      then 'a unique or debounced task needs an idempotency_key'
    when element ? 'debounce' and element ? 'run_at' then 'a debounced task has no run_at of its own'
    end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = place || _problem;
  end if;
  if element ? 'debounce' then
    perform queues.parse_duration('debounce', element ->> 'debounce', interval '0', interval '1 year', place);
  end if;
  if element ? 'debounce_max' then
    perform queues.parse_duration('debounce_max', element ->> 'debounce_max', interval '0', interval '1 year', place);
  end if;
end
$$;

-- Returns the task that an enqueue with this key has to use, or else null. Locks the key, so that another enqueue of it
-- waits until this transaction ends. For a debounced task, cancels the one that waits, or records that the one that a
-- worker holds is replaced, and returns when the new one is to run.
-- Internal: called by insert_arranged. Locks: the row of the key, then the ready row, by lock_task.
create or replace function queues.find_unique(
  type text, key text, "unique" text, debounce interval, debounce_max interval, namespace text default null,
  out task_id uuid, out run_at timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := coalesce(find_unique.namespace, queues.namespace());
  _held queues.unique_task;
  _place text;
  _attempt integer;
  _waits boolean;
begin
  if key is null or octet_length(key) not between 1 and 500 then
    raise exception using errcode = 'QF400', message = 'a unique or debounced task needs a key of 1 to 500 bytes';
  elsif num_nonnulls("unique", debounce) <> 1 or "unique" not in ('waiting', 'unfinished', 'succeeded', 'active') then
    raise exception using errcode = 'QF400',
      message = 'give either unique, which is waiting, unfinished, succeeded or active, or debounce';
  elsif debounce not between interval '0' and interval '1 year'
    or debounce_max not between debounce and interval '1 year'
    or debounce_max is not null and debounce is null
  then
    raise exception using errcode = 'QF400',
      message = 'debounce is at most one year, and debounce_max at least as long';
  end if;
  if "unique" is null or "unique" not in ('succeeded', 'active') then
    perform queues.check_name('type', type);
  end if;

  for _try in 1..10 loop
    insert into queues.unique_task (type, key, namespace) values (find_unique.type, find_unique.key, _namespace)
    on conflict do nothing;
    select * into _held from queues.unique_task u
    where u.type = find_unique.type and u.key = find_unique.key and u.namespace = _namespace for update;
    exit when found;
  end loop;
  if not found then
    raise exception using errcode = 'QF503', message = 'the key of a unique task is removed too often; try again';
  end if;
  if "unique" in ('succeeded', 'active') then
    task_id := (
      select t.task_id from queues.task t
      left join queues.outcome o on o.task_id = t.task_id
      where t.task_id = _held.task_id
        and (o.status = 'succeeded' or find_unique."unique" = 'active' and o.task_id is null)
        and (select true from queues.deletion d where d.task_id = t.task_id limit 1) is null);
    return;
  end if;
  if _held.task_id is not null then
    -- Locked until the caller's transaction ends: a claim in between would run without seeing its changes.
    select l.place, l.attempt into _place, _attempt from queues.lock_task(_held.task_id, array['ready']) l;
    _waits := _place = 'ready' and (debounce is null or _attempt = 0 and queues.current_generation(_held.task_id) = 1)
      and (select true from queues.wait w where w.task_id = _held.task_id and w.name <> '' limit 1) is null;
    if _waits and debounce is null
      or "unique" = 'unfinished' and _place in ('ready', 'lease')
        and not exists (select from queues.deletion d where d.task_id = _held.task_id)
    then
      task_id := _held.task_id;
      return;
    end if;
  end if;
  if debounce is not null then
    _held.first_at := case when _waits then coalesce(_held.first_at, _now) else _now end;
    run_at := greatest(_now, least(_now + debounce, _held.first_at + debounce_max));
    if _waits then
      perform queues.cancel_now(_held.task_id, 'debounced: replaced by a later one');
    elsif _place = 'lease' and _attempt = 1 and queues.current_generation(_held.task_id) = 1 then
      -- Without a lock on the lease, for which the worker's reports would wait. See cancel_replaced.
      insert into queues.act (task_id, act, occurred_at, attempt, worker_id, actor, reason)
      values (_held.task_id, 'replaced', _now, 1, (
        select l.worker_id from queues.lease l where l.task_id = _held.task_id), queues.actor(),
        'debounced: a later one was enqueued while this one was held');
    end if;
    update queues.unique_task u set first_at = _held.first_at
    where u.type = find_unique.type and u.key = find_unique.key and u.namespace = _namespace;
  end if;
end
$$;

-- Stores that a task that was just enqueued holds its key of unique tasks. A spec stays with a run that is unfinished.
-- Internal: called by insert_arranged, which has locked the key. Locks: the row of the key.
create or replace function queues.store_unique(task_id uuid, key text, by_spec boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  update queues.unique_task u set task_id = t.task_id
  from queues.task t
  where t.task_id = store_unique.task_id and u.type = case when by_spec then '' else t.type end
    and u.key = store_unique.key and u.namespace = t.namespace
    and not (by_spec and ((select true from queues.ready w where w.task_id = u.task_id limit 1) is not null
      or (select true from queues.lease l where l.task_id = u.task_id limit 1) is not null));
end
$$;

-- Cancels those of these tasks that wait although a later debounced one was enqueued while a worker held them: they
-- have not begun any more, and older arguments must not overtake newer ones. One that has gone on by ctx.continue_as
-- has begun. Runs after the statement that made them ready, so that it sees an enqueue that is committed; one that is
-- committed later is due after them.
-- Internal: called by end_leases. Locks: ready rows that the caller has inserted.
create or replace function queues.cancel_replaced(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _replaced uuid;
begin
  for _replaced in
    select r.task_id from queues.ready r
    where r.task_id = any (task_ids) and r.attempt = 0
      and (select a.act from queues.act a where a.task_id = r.task_id and a.act in ('replaced', 'retried')
        order by a.act_id desc limit 1) = 'replaced'
      and queues.current_generation(r.task_id) = 1
    order by r.task_id
  loop
    perform queues.cancel_now(_replaced, 'debounced: replaced by a later one');
  end loop;
end
$$;
