-- Enqueues tasks as the children of a running task and returns them in their order, with the verdict started, or
-- already if the step has started its children before: then those are returned. If the worker does not hold the task
-- with this token, nothing is started, and the only row has the verdict lost, cancelled or busy. Held is {"task_id",
-- "token", "name", "number", "awaited", "leave", "keys", "batch"}: the step, whether it waits for them, whether they go
-- on when the run ends without success, optionally a key for each, and whether they are added to the batch of the run:
-- then tasks that come after the run wait for them, too. Tasks and payloads are as in enqueue_many. They belong to the
-- namespace of the run, with executors that its clients may use. A step that does not wait is recorded here.
-- For holdfast_worker. Locks: the lease, without waiting; then waits of tasks after it; then keys.
create or replace function queues.start_children(worker_id text, held jsonb, tasks jsonb, payloads text[] default null)
returns table (number integer, task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('tasks', tasks);
  _durable constant text := queues.commit_to_disk();
  _parent_id constant uuid := (held ->> 'task_id')::uuid;
  _token constant bigint := (held ->> 'token')::bigint;
  _step constant text := held ->> 'name';
  _awaited constant boolean := (held ->> 'awaited')::boolean is true;
  _keys constant jsonb := held -> 'keys';
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_children');
  _ends constant boolean := _awaited and (held ->> 'leave')::boolean is not true;
  _generation integer;
  _parent record;
  _after uuid[];
  _ids uuid[];
  _created boolean[];
  _count bigint;
  _own uuid;
begin
  select coalesce(l.generation, 1) into _generation from queues.lease l
  where l.task_id = _parent_id and l.token = _token and l.worker_id = start_children.worker_id
  for no key update skip locked;
  if not found then
    -- A separate statement, so that it sees what was committed meanwhile.
    return query select null::integer, null::uuid, case
      when exists (select from queues.act a
        where a.task_id = _parent_id and a.token = _token and a.act = 'cancelled') then 'cancelled'
      when exists (select from queues.lease l
        where l.task_id = _parent_id and l.token = _token and l.worker_id = start_children.worker_id) then 'busy'
      else 'lost' end;
    return;
  end if;
  if _step is null or octet_length(_step) not between 1 and 400 then
    raise exception using errcode = 'QF400', message = 'a step that starts tasks needs a name of 1 to 400 bytes';
  end if;
  return query
  select c.number, c.child_id, 'already' from queues.child c
  where c.parent_id = _parent_id and c.generation = _generation and c.step = _step order by c.number;
  if found then
    return;
  end if;

  if (held ->> 'batch')::boolean then
    _after := queues.lock_batch(_parent_id);
  end if;
  select t.enqueued_by, t.namespace into _parent from queues.task t where t.task_id = _parent_id;
  if payloads is null then
    select array_agg(i.task_id), array_agg(i.created) into _ids, _created from queues.insert_tasks(
      tasks, for_process => false, enqueued_by => _parent.enqueued_by, namespace => _parent.namespace) i;
  else
    select array_agg(i.task_id), array_agg(i.created) into _ids, _created from queues.insert_payloads(
      tasks, payloads, for_process => false, enqueued_by => _parent.enqueued_by, namespace => _parent.namespace) i;
  end if;
  if cardinality(_ids) is null or _keys is not null and jsonb_array_length(_keys) <> cardinality(_ids) then
    raise exception using errcode = 'QF400',
      message = 'a step starts at least one task, and has a key for each or none';
  end if;
  if _awaited and false = any (_created) then
    with recursive above(task_id) as (
      select _parent_id
      union
      select c.parent_id from above a
      cross join lateral (
        select c.parent_id from queues.child c
        where c.awaited and c.child_id = a.task_id
          and (c.step = '' or c.generation = queues.current_generation(c.parent_id)) offset 0) c)
    select a.task_id into _own from above a where a.task_id = any (_ids) limit 1;
    if found then
      raise exception using errcode = 'QF412',
        message = format('task %s has the key of one of these tasks, and waits for this run or is this run', _own),
        hint = 'A run cannot wait for itself: give the task another key, or none.';
    end if;
  end if;
  select count(*) into _count from (
    select from queues.child c where c.parent_id = _parent_id and c.generation = _generation limit _most) c;
  if _count + cardinality(_ids) > _most then
    raise exception using errcode = 'QF413',
      message = format('the run has started %s tasks; with %s more it would have more than the %s allowed',
        _count, cardinality(_ids), _most),
      hint = 'Begin again with ctx.continue_as, or let the children start further ones.';
  end if;
  insert into queues.child (parent_id, generation, step, number, child_id, awaited, ends_with_parent, key)
  select _parent_id, _generation, _step, s.n, s.task_id, _awaited, _ends and s.created,
    case when _keys is not null then _keys ->> (s.n - 1)::integer end
  from unnest(_ids, _created) with ordinality s(task_id, created, n);
  if _after is not null then
    perform queues.extend_batch(_after, _ids, _created, _most);
  end if;
  if not _awaited then
    insert into queues.step (token, ended_at, task_id, generation, number, took_ms, tries, kind, name, result)
    values (_token, queues.clock(), _parent_id, _generation, (held ->> 'number')::integer, 0, 1,
      queues.step_code('children'), _step, jsonb_build_object('task_ids', to_jsonb(_ids)));
  end if;
  return query select s.n::integer, s.task_id, 'started' from unnest(_ids) with ordinality s(task_id, n);
end
$$;

comment on function queues.start_children(text, jsonb, jsonb, text[]) is
  'Enqueues tasks as the children of a running task, under its lease, and returns them in their order.';
