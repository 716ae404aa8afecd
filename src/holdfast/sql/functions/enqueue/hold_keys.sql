-- Returns the task for each element of a batch: a new one, or the one that already has its key in the namespace. If an
-- open transaction holds the key, waits for it; if that transaction rolls back, this one gets the key.
-- Locks: keys, in the order of (type, key).
create or replace function queues.hold_keys(batch queues.new_task[], namespace text)
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
    select distinct on (b.type, b.idempotency_key) b.type, b.idempotency_key, hold_keys.namespace, b.task_id
    from unnest(batch) b
    where b.idempotency_key is not null
    order by b.type, b.idempotency_key, b.n
    on conflict do nothing;
    get diagnostics _new = row_count;
    _inserted := _inserted + _new;

    -- A separate statement, so that it sees what other transactions committed during the wait.
    select array_agg(case when b.idempotency_key is null then b.task_id else k.task_id end order by b.n),
           count(*) filter (where b.idempotency_key is not null and k.task_id is null),
           count(*) filter (where k.task_id = b.task_id)
    into _holders, _missing, _own
    from unnest(batch) b
    left join lateral (
      select k.task_id from queues.task_key k
      where k.type = b.type and k.idempotency_key = b.idempotency_key and k.namespace = hold_keys.namespace offset 0) k on true;
    exit when _missing = 0;
  end loop;
  -- A snapshot from before the key was freed shows the former holder beside the row just inserted.
  if _own < _inserted or cardinality(_holders) > cardinality(batch) then
    raise exception using errcode = '40001', message = 'an idempotency key was reassigned since this transaction began; try again';
  end if;
  if _missing > 0 then
    raise exception using errcode = 'QF503', message = 'an idempotency key is reassigned too often; try again';
  end if;

  select b.n, b.type, b.idempotency_key, _holders[b.n] as holder into _conflict
  from unnest(batch) b
  left join unnest(batch) sibling on sibling.task_id = _holders[b.n]
  left join lateral (select t.executor, t.payload from queues.task t where t.task_id = _holders[b.n] offset 0) t on true
  where _holders[b.n] <> b.task_id and (b.executor, b.payload::text)
    is distinct from (coalesce(sibling.executor, t.executor), coalesce(sibling.payload, t.payload)::text)
  order by b.n limit 1;
  if found then
    raise exception using errcode = 'QF409',
      message = format('idempotency_key %s of type %s already belongs to task %s, which has another payload or executor',
        to_json(_conflict.idempotency_key), _conflict.type, _conflict.holder),
      hint = 'A key identifies one request: use another key, or send the same payload.';
  end if;
  return _holders;
end
$$;

comment on function queues.hold_keys(queues.new_task[], text) is
  'Returns the task for each element of a batch: a new one, or the one that already has its key in the namespace.';
