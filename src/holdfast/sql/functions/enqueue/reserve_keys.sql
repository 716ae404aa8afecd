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

comment on function queues.reserve_keys(queues.new_task[], jsonb[], uuid[], text) is
  'Returns the task for each request of a batch: a new one, or the one that already has its key in the namespace.';
