-- Joins: a step starts tasks (children), and its run is suspended until all of them have ended, or the first. Tasks
-- after others (batches.sql) wait in the same way. In order: start_children; finish calls write_waits, which points to
-- the first that has not ended; when that one ends, notify_waiters (finish.sql) calls mark_joins, which leaves a chore;
-- after that commit, the worker (wake_joined) or the leader (do_chores) moves the pointer or wakes the run, which reads
-- by read_children how they ended. Chores also wake runs for signals.sql, and cancel.
-- Invariant: how a child has ended is read from its outcome, its deletion or its absence, without a counter. The
-- pointer names a child that has not ended, or a look after some commit is still to come. A chore is deleted only after
-- its task was looked at, in a statement that began after the chore was seen: the later of two commits is followed by a
-- look.
-- Lock order: leases, keys, chores by number, rows of queues.wait, ready rows, then outcomes of causes, shared. Nothing
-- waits, except for rows of queues.wait to extend the batch of the run, and for the keys of new tasks.
-- At the same time: a child may end while its run suspends, and neither transaction sees the other. Both look again
-- after their commit. Any number of sessions may do chores; two for one task do no harm. A retry of the cause of a
-- cancellation comes first, and then the chore is dropped or left, or waits and brings the task back.
-- Explained in docs/design/runs.md.

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

-- Replaces what runs wait for by the waits of their reports. A wait for a signal or a task that goes on keeps its row,
-- and so its timeout. A wait for a time takes the new one: a step that failed again is tried later. Runs that wait for
-- a signal or a task are looked at again after the commit.
-- Internal: called by finish for runs that it has suspended.
create or replace function queues.write_waits(results jsonb, places integer[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with given as materialized (
    select r.task_id, w.name, w.until, w.signal, w.on_task, w.number, w.policy
    from rows from (jsonb_to_recordset(results) as (task_id uuid, waits jsonb)) with ordinality r(task_id, waits, n)
    left join lateral jsonb_to_recordset(r.waits) as w(
      name text, until timestamptz, signal text, on_task uuid, number integer, policy text) on true
    where r.n = any (places)),
  dropped as (
    delete from queues.wait w
    where w.task_id = any (array(select g.task_id from given g))
      and not exists (select from given g where g.task_id = w.task_id and g.name = w.name)),
  added as (
    insert into queues.wait (task_id, name, until, signal, on_task, number, policy)
    select g.task_id, g.name, coalesce(g.until, write_waits.now + interval '30 days'), g.signal,
      coalesce(g.on_task, o.task_id), coalesce(g.number, o.number), g.policy
    from given g
    left join lateral queues.first_open_child(g.task_id, g.name, 1) o on g.policy = 'all'
    where g.name is not null
    on conflict do nothing),
  moved as (
    update queues.wait w set until = g.until
    from given g
    where w.task_id = any (array(select g.task_id from given g)) and w.task_id = g.task_id and w.name = g.name
      and num_nonnulls(w.signal, w.on_task, w.policy, g.signal, g.on_task, g.policy) = 0 and w.until <> g.until),
  looked_again as (
    -- The pointer of a join was at its end, and the run waits on: a child that had ended was retried or restored.
    update queues.wait w set (on_task, number) = (
      select o.task_id, coalesce(o.number, w.number) from queues.first_open_child(w.task_id, w.name, 1) o)
    where w.task_id = any (array(select g.task_id from given g where g.policy = 'all')) and w.on_task is null
      and exists (select from given g where g.task_id = w.task_id and g.name = w.name and g.policy = 'all'))
  insert into queues.chore (kind, added_at, task_id)
  select distinct 'w'::"char", write_waits.now, g.task_id from given g
  where num_nonnulls(g.signal, g.on_task, g.policy) > 0;
end
$$;

-- Leaves a chore for each run whose join points to one of these tasks, which end with this transaction: it is looked at
-- after the commit, if the worker that ended the tasks does not (wake_joined).
create or replace function queues.mark_joins(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.chore (kind, added_at, task_id)
  select distinct 'w'::"char", queues.clock(), w.task_id from queues.wait w where w.on_task = any (task_ids);
$$;

-- Returns the kinds of chores that are to be done: wake, join, cancel or waiter, in the order in which to call
-- do_chores.
-- For holdfast_worker and holdfast_operator. Locks: none.
create or replace function queues.due_chores()
returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
  select array_remove(array[
    case when d.wake then 'wake' end, case when d."join" then 'join' end,
    -- Those two may find tasks to be cancelled.
    case when d.wake or d."join" or exists (select from queues.chore c where c.kind = 'c') then 'cancel' end,
    case when exists (select from queues.waiter w where w.until < queues.clock()) then 'waiter' end], null)
  from (
    select exists (select from queues.chore c where c.kind = 'w') as wake,
      exists (select from queues.wait w where w.on_task is not null) as "join") d
$$;

-- Does chores of one kind, up to a number, in the name of the engine, and returns how many it did. Call it for each
-- kind in a transaction of its own, so that an error of one kind leaves the others alone. Any number of sessions may
-- call it at once.
--   wake    makes runs due whose signal has come, or whose awaited tasks have ended
--   join    looks at runs that wait for a task, in turn, for a worker that died before it could
--   cancel  cancels children of runs that ended without success, and tasks after those that did, and theirs
--   waiter  forgets clients that no longer wait for a result
-- For holdfast_worker and holdfast_operator. Locks: chores, then rows of queues.wait, then ready rows, leases and
-- outcomes; without waiting.
create or replace function queues.do_chores(kind text, max_chores integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _code constant "char" := case do_chores.kind when 'wake' then 'w' when 'cancel' then 'c' end;
  _done integer := 0;
  _chores bigint[];
  _seen bigint[] := '{}';
begin
  perform queues.check_number('max_chores', max_chores, 1, 10000);
  if do_chores.kind = 'join' then
    return queues.look_at_joins(max_chores, _now);
  elsif do_chores.kind = 'waiter' then
    delete from queues.waiter w
    where w.task_id in (
      select held.task_id from queues.waiter held where held.until < _now limit max_chores for update skip locked);
    get diagnostics _done = row_count;
    return _done;
  elsif _code is null then
    raise exception using errcode = 'QF400', message = format('kind %s is unknown', to_json(do_chores.kind)),
      hint = 'Allowed: wake, join, cancel, waiter.';
  end if;

  perform queues.commit_to_disk();
  -- What is cancelled leads to further chores, which come after those that were there.
  while cardinality(_seen) < max_chores loop
    _chores := array(
      select c.chore_id from queues.chore c
      where c.kind = _code and c.chore_id > coalesce(_seen[cardinality(_seen)], 0)
      order by c.chore_id limit max_chores - cardinality(_seen) for update skip locked);
    exit when _chores = '{}';
    _seen := _seen || _chores;
    if _code = 'w' then
      _done := _done + (select w.done from queues.wake_chores(_chores, _now) w);
    else
      _done := _done + queues.cancel_chores(_chores, _now);
    end if;
  end loop;
  if _done < cardinality(_seen) and cardinality(_seen) = max_chores then
    -- Those whose task another transaction holds come after the others, so that they do not keep the next call from
    -- them.
    update queues.chore c set chore_id = default where c.kind = _code and c.chore_id = any (_seen);
  end if;
  return _done;
end
$$;

-- Puts the first chore of a kind, wake or cancel, behind the others, with the error that it raised. Call it if
-- do_chores fails for that one alone: then it does not keep the others from being done, and health reports it.
-- For holdfast_worker and holdfast_operator. Locks: the chore, without waiting.
create or replace function queues.postpone_chore(kind text, error text)
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  update queues.chore c set chore_id = default, error = left(postpone_chore.error, 2000)
  where (c.kind, c.chore_id) in (
    select first.kind, first.chore_id from queues.chore first
    where first.kind = case postpone_chore.kind when 'wake' then 'w'::"char" when 'cancel' then 'c' end
    order by first.chore_id limit 1 for update skip locked)
$$;

-- Looks at the joins that wait for one of these tasks, which have just ended: moves their pointers, and makes runs due
-- whose join is over. Returns the runs to look at again with wake_waiting after the commit; null if no run waits for a
-- task at all. Call it after the commit of what ended the tasks; the chore join looks at all joins in turn, for a
-- worker that died between the two calls.
-- For holdfast_worker. Locks: rows of queues.wait, then ready rows, without waiting.
create or replace function queues.wake_joined(task_ids uuid[])
returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  if not exists (select from queues.wait w where w.on_task is not null) then
    return null;
  end if;
  return queues.settle_joins(coalesce(task_ids, '{}'), '{}', queues.clock());
end
$$;

-- Looks at joins, as far as it comes, and returns how many of the tasks that they wait for have ended. Where it stopped
-- is a chore of its own, with which the next call goes on. Removes what ended runs still seem to wait for.
-- Internal: called by do_chores. Locks: that chore, then rows of queues.wait, then ready rows, without waiting.
create or replace function queues.look_at_joins(max_chores integer, now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _last uuid;
  _tasks uuid[];
  _ended uuid[];
begin
  with begun as (
    delete from queues.chore c
    where c.kind = 'j' and c.chore_id in (
      select j.chore_id from queues.chore j where j.kind = 'j' for update skip locked)
    returning c.task_id)
  select max(b.task_id::text)::uuid into _last from begun b;
  if _last is null and exists (select from queues.chore c where c.kind = 'j') then
    return 0;  -- another session is at it
  end if;
  _tasks := array(
    select distinct w.on_task from queues.wait w
    where w.on_task > coalesce(_last, '00000000-0000-0000-0000-000000000000') order by w.on_task limit max_chores);
  if cardinality(_tasks) = max_chores then
    insert into queues.chore (kind, added_at, task_id) values ('j', now, _tasks[max_chores]);
  end if;
  delete from queues.wait w
  where w.on_task = any (_tasks) and (select true from queues.outcome o where o.task_id = w.task_id limit 1);
  _ended := array(select t.task_id from unnest(_tasks) t(task_id) where not queues.is_open(t.task_id));
  perform queues.settle_joins(_ended, '{}', now);
  return cardinality(_ended);
end
$$;

-- Moves the pointers of joins (advance_joins) and makes runs due whose join is over. Returns the runs to look at again
-- after the commit: their pointer moved, or their ready row was locked.
-- Internal: called by wake_chores, look_at_joins, wake_joined, end_leases, cancel_now, cancel_chores and hold_back.
-- Locks: rows of queues.wait, then ready rows, without waiting.
create or replace function queues.settle_joins(ended uuid[], runs uuid[], now timestamptz)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _moved uuid[];
  _over uuid[];
  _woken uuid[];
  _again uuid[];
begin
  select a.moved, a.over into _moved, _over from queues.advance_joins(ended, runs, now) a;
  _again := _moved;
  if _over <> '{}' then
    _woken := queues.wake_runs(_over, now);
    delete from queues.wait w where w.task_id = any (_woken) and w.name = '' and w.policy in ('ended', 'succeeded');
    _again := _again || array(
      select r.task_id from queues.ready r
      where r.task_id = any (_over) and not r.task_id = any (_woken) and r.run_at > settle_joins.now and r.attempt = 0);
  end if;
  if _again <> '{}' then
    insert into queues.chore (kind, added_at, task_id)
    select distinct 'w'::"char", settle_joins.now, a.task_id from unnest(_again) a(task_id);
  end if;
  return _again;
end
$$;

-- Moves the pointers of joins that name one of these tasks, and those of the given runs, to the next task that has not
-- ended. Returns the runs whose pointer moved, and those whose join is over. Each awaited task is looked at once in
-- all. A pointer that moved has to be looked at again after the commit: its task may end before others can see the
-- pointer. Looks at 1,000 of the runs that wait for the ended tasks; the others count as moved. A task that comes after
-- others is to be cancelled if it needs their success and one has ended otherwise.
-- Internal. Locks: rows of queues.wait, without waiting. A run whose row is locked counts as moved: who holds the row
-- may not have seen the end that the caller has seen.
create or replace function queues.advance_joins(
  ended uuid[], runs uuid[], now timestamptz, out moved uuid[], out over uuid[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _most constant integer := 1000;
  _waiting constant uuid[] := array(select w.task_id from queues.wait w where w.on_task = any (ended));
  _runs constant uuid[] := runs || _waiting[:_most];
  _locked uuid[] := '{}';
  _wait queues.wait;
  _open record;
  _culprit record;
begin
  moved := _waiting[_most + 1:];
  over := '{}';
  for _wait in
    select w.* from queues.wait w
    where w.task_id = any (_runs) and w.policy is not null order by w.task_id, w.name for update skip locked
  loop
    _locked := _locked || _wait.task_id;
    if _wait.policy = 'first' then
      select _wait.number as number, _wait.on_task as task_id into _open where queues.is_open(_wait.on_task);
    else
      select o.number, o.task_id into _open
      from queues.first_open_child(_wait.task_id, case when _wait.policy = 'all' then _wait.name else '' end,
        coalesce(_wait.number, 1)) o where o.task_id is not null;
    end if;
    if _wait.policy = 'succeeded' then
      -- The first of those before it, up to the open one, that has not succeeded.
      select c.child_id as task_id,
        format('after: %s %s', c.child_id, coalesce('ended ' || o.status, 'was deleted')) as reason
      into _culprit
      from queues.child c
      left join lateral (select o.status from queues.outcome o where o.task_id = c.child_id offset 0) o on true
      where c.parent_id = _wait.task_id and c.generation = 1 and c.step = '' and c.number >= coalesce(_wait.number, 1)
        and (_open.number is null or c.number < _open.number) and o.status is distinct from 'succeeded'
      order by c.number limit 1;
      if _culprit.task_id is not null then
        insert into queues.chore (kind, added_at, task_id, cause, cause_id, reason)
        select 'c', advance_joins.now, _wait.task_id, 'd', _culprit.task_id, _culprit.reason
        where not exists (
          select from queues.chore c
          where c.task_id = _wait.task_id and c.kind = 'c' and c.cause_id = _culprit.task_id);
        update queues.wait w set on_task = null where w.task_id = _wait.task_id and w.name = _wait.name;
        continue;
      end if;
    end if;
    if _open.task_id is null then
      over := over || _wait.task_id;
      if _wait.policy <> 'first' then
        update queues.wait w set on_task = null
        where w.task_id = _wait.task_id and w.name = _wait.name and w.on_task is not null;
      end if;
    elsif _open.task_id is distinct from _wait.on_task then
      update queues.wait w set on_task = _open.task_id, number = _open.number
      where w.task_id = _wait.task_id and w.name = _wait.name;
      moved := moved || _wait.task_id;
    end if;
  end loop;
  moved := moved || array(
    select distinct w.task_id from queues.wait w
    where w.task_id = any (_runs) and w.policy is not null and not w.task_id = any (_locked));
end
$$;

-- Returns the first child of a step, from a place on, that has not ended, and its place. A child has also ended if it
-- was deleted, or if retention has removed it. Without a step: the first task before it.
create or replace function queues.first_open_child(
  parent_id uuid, step text, from_number integer, out number integer, out task_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select c.number, c.child_id
  from queues.child c
  where c.parent_id = first_open_child.parent_id
    and c.generation = case when first_open_child.step = '' then 1
      else queues.current_generation(first_open_child.parent_id) end
    and c.step = first_open_child.step and c.number >= from_number
    -- Most have an outcome: a look there costs less than the call.
    and case when (select true from queues.outcome o where o.task_id = c.child_id limit 1) then false
      else queues.is_open(c.child_id) end
  order by c.number limit 1
$$;

-- Returns whether a task exists, has not ended and is not deleted.
create or replace function queues.is_open(task_id uuid)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select (select true from queues.outcome o where o.task_id = is_open.task_id limit 1) is null
    and (select true from queues.deletion d where d.task_id = is_open.task_id limit 1) is null
    and (select true from queues.task t where t.task_id = is_open.task_id limit 1) is true
$$;

-- Makes suspended runs due now and returns those that it moved. Skips rows that another transaction holds. A run that
-- waits for its next attempt after a failure is not suspended, and keeps its delay.
-- Internal: called by signal, settle_joins and wake_chores, which leave or keep a chore for a run that is skipped.
-- Locks: ready rows, without waiting.
create or replace function queues.wake_runs(task_ids uuid[], now timestamptz)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _moved uuid[];
  _places tid[];
  _run_ats timestamptz[];
begin
  with locked as materialized (
    select r.task_id, r.ctid as place from queues.ready r
    where r.task_id = any (task_ids) and r.run_at > wake_runs.now and r.attempt = 0
    order by r.task_id for update skip locked)
  -- A task that came after others may have a time of its own.
  select coalesce(array_agg(l.task_id), '{}'), array_agg(l.place), array_agg(greatest(wake_runs.now, (
    select w.until from queues.wait w where w.task_id = l.task_id and w.name = '')))
  into _moved, _places, _run_ats from locked l;
  if _moved <> '{}' then
    perform queues.move_ready(_places, _run_ats, null);
    perform queues.wake_for(m.task_id) from unnest(_moved) m(task_id);
  end if;
  return _moved;
end
$$;

-- Returns the next results of the children of a step, in order, after this place: those that succeeded, about 4 MiB as
-- text, and at least one. None if there are no more, or if the worker does not hold the run with this token. A loop, so
-- that no more results are read than are returned: a hundred thousand of them may have a megabyte each.
-- For holdfast_worker. Locks: none.
create or replace function queues.read_results(
  worker_id text, task_id uuid, token bigint, step text, after_number integer)
returns table (number integer, result jsonb)
language plpgsql stable security definer rows 1000
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _generation constant integer := (
    select coalesce(l.generation, 1) from queues.lease l
    where l.task_id = read_results.task_id and l.token = read_results.token and l.worker_id = read_results.worker_id);
  _bytes bigint := 0;
begin
  if _generation is null then
    return;
  end if;
  for number, result in
    select c.number, coalesce(o.result, 'null')
    from queues.child c
    cross join lateral (
      select o.status, o.result from queues.outcome o where o.task_id = c.child_id offset 0) o
    where c.parent_id = read_results.task_id
      and c.generation = case when read_results.step = '' then 1 else _generation end
      and c.step = read_results.step and c.number > after_number and o.status = 'succeeded'
    order by c.number
  loop
    return next;
    _bytes := _bytes + octet_length(result::text);
    exit when _bytes >= 4194304;
  end loop;
end
$$;

-- Returns the children of each step of the current generation of a run, and of the tasks before it, one row per step:
-- how many there are, the results of those that succeeded, in order, and {"open": how many have not ended, "others":
-- [[place, task_id, status, reason]] of all that have not succeeded, "keys": of all}. Of more than a hundred, nothing
-- else is returned while one is open. Results that may have more than 4 MiB, for all steps of the run together, are not
-- returned: {"paged": true} says so, and queues.read_results reads them. Their sizes are taken from the rows, because
-- to read a result is what costs: one that is compressed counts as 255 times its size, the most that lz4 and pglz can
-- reach, or as 1 MiB. Those that succeeded are read in one scan: a lookup for each would take three times as long.
-- Internal: called by read_steps and children_of. Locks: none.
create or replace function queues.read_children(parent_id uuid)
returns table (step text, count integer, results jsonb, others jsonb)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _generation constant integer := queues.current_generation(parent_id);
  _children uuid[];
  _succeeded uuid[];
  _keys jsonb;
  _steps bigint;
  _bytes bigint;
  _ended bigint;
  _open boolean;
begin
  for step, count, _children, _keys, _steps in
    select c.step, max(c.number), array_agg(c.child_id order by c.number),
      case when bool_or(c.key is not null) then jsonb_agg(c.key order by c.number) end, count(*) over ()
    from queues.child c
    where c.parent_id = read_children.parent_id and c.awaited
      and c.generation in (1, _generation) and (c.step = '' or c.generation = _generation)
    group by c.step
  loop
    _open := count > 100 and (
      select o.number from queues.wait w
      cross join lateral queues.first_open_child(w.task_id, w.name, w.number) o
      where w.task_id = read_children.parent_id and w.name = read_children.step) is not null;
    if not _open then
      select coalesce(array_agg(o.task_id order by o.task_id) filter (where o.status = 'succeeded'), '{}'),
        coalesce(sum(case when pg_column_compression(o.result) is null then pg_column_size(o.result)
          else least(255 * pg_column_size(o.result)::bigint, 1048576) end) filter (where o.status = 'succeeded'), 0),
        count(*)
      into _succeeded, _bytes, _ended
      from queues.outcome o where o.task_id = any (_children);
      -- Without a pointer, and some have no outcome.
      _open := count > 100 and _ended < count
        and (select o.number from queues.first_open_child(parent_id, step, 1) o) is not null;
    end if;
    results := null;
    if _open then
      others := '{"open": 1}';
    else
      others := jsonb_build_object('keys', _keys) || case when _succeeded = _children then '{"open": 0, "others": null}'
        else queues.children_without_success(_children) end;
      if _bytes * _steps > 4194304 then
        others := others || '{"paged": true}';
      else
        results := queues.results_in_order(_children, _succeeded);
      end if;
    end if;
    return next;
  end loop;
end
$$;

-- Returns which of these children have not succeeded, as read_children does: {"open", "others"}.
create or replace function queues.children_without_success(children uuid[])
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('open', count(*) filter (where c.status = 'open'), 'others',
    jsonb_agg(jsonb_build_array(c.number, c.child_id, c.status, left(c.reason, 500)) order by c.number))
  from (
    select c.number, c.child_id, o.reason, case
      when (select true from queues.deletion d where d.task_id = c.child_id limit 1) then 'deleted'
      when (select true from queues.task t where t.task_id = c.child_id limit 1) is null then 'removed'
      else coalesce(o.status, 'open') end as status
    from unnest(children) with ordinality c(child_id, number)
    left join lateral (select o.status, o.reason from queues.outcome o where o.task_id = c.child_id offset 0) o on true
    where o.status is distinct from 'succeeded') c
$$;

-- Returns the results of those of these children that succeeded, in the order of the children. Ids of a batch are in
-- that order already; those of tasks that were there before, found by their keys, may not be.
create or replace function queues.results_in_order(children uuid[], succeeded uuid[])
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if children = succeeded or children = array(select distinct c.id from unnest(children) c(id) order by c.id) then
    return (
      select jsonb_agg(coalesce(o.result, 'null') order by o.task_id) from queues.outcome o
      where o.task_id = any (succeeded));
  end if;
  return (
    select jsonb_agg(coalesce(o.result, 'null') order by c.number)
    from unnest(children) with ordinality c(child_id, number)
    cross join lateral (
      select o.result from queues.outcome o where o.task_id = c.child_id and o.status = 'succeeded' offset 0) o);
end
$$;

-- Returns the awaited children of each step of the current generation of a run, one row per step, as read_steps gives
-- them to a worker. None if the session may not read the run.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.children_of(task_id uuid)
returns table (step text, count integer, results jsonb, others jsonb)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
  select c.step, c.count, c.results, c.others
  from (select t.task_id from queues.task_status t where t.task_id = children_of.task_id offset 0) t
  cross join lateral queues.read_children(t.task_id) c
$$;

-- Leaves a chore for each child that its step no longer waits for: the others of a race, or of a join that took too
-- long.
-- Internal: called by insert_steps for such steps, whose leases are locked. Locks: none.
create or replace function queues.cancel_unawaited(runs jsonb, places integer[], now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.chore (kind, added_at, task_id, cause, cause_id, reason)
  select distinct on (3) 'c'::"char", cancel_unawaited.now, c.child_id, 's'::"char", r.task_id,
    format('%s of its parent %s is over', s.name, r.task_id)
  from rows from (jsonb_to_recordset(runs) as (task_id uuid, steps jsonb)) with ordinality r(task_id, steps, n)
  cross join lateral jsonb_to_recordset(r.steps) as s(name text, kind text)
  cross join lateral (
    select c.child_id from queues.child c
    where c.parent_id = r.task_id and c.generation = queues.current_generation(r.task_id) and c.step = s.name
      and c.ends_with_parent
      and (select true from queues.outcome o where o.task_id = c.child_id limit 1) is null
    offset 0) c
  where r.n = any (places) and s.kind in ('children', 'first') order by 3;
$$;

-- Removes what runs waited for that have ended without success, or that are removed. Children that a step of them still
-- waits for are to be cancelled, unless they were started to be left.
-- Internal: called by cancel_now and end_leases after the outcome was written, and by prune.
create or replace function queues.end_waits(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  delete from queues.wait w where w.task_id = any (task_ids);
  insert into queues.chore (kind, added_at, task_id, cause, cause_id, reason)
  select distinct on (3) 'c', queues.clock(), c.child_id, 'p', c.parent_id,
    format('its parent %s %s', c.parent_id, coalesce((
      select 'ended ' || p.status from queues.outcome p where p.task_id = c.parent_id), 'was deleted'))
  from queues.task t
  join queues.child c on c.parent_id = t.task_id and c.generation = coalesce(t.generation, 1)
  where t.task_id = any (task_ids) and c.parent_id = any (task_ids) and c.ends_with_parent
    and (
      select true from queues.step s
      where s.task_id = c.parent_id and s.generation = c.generation and s.name = c.step limit 1) is null
    and (select true from queues.outcome o where o.task_id = c.child_id limit 1) is null
  order by 3, 5;
$$;

-- Does these chores of the kind cancel, in the name of the engine, and returns how many it removed. A chore whose task
-- another transaction holds is left. So is one whose cause another transaction is about to retry; if the cause has not
-- ended any more, or has succeeded meanwhile, the chore is dropped. Children of the cancelled tasks, and tasks after
-- them, are the next chores.
-- Internal: called by do_chores, which has locked the chores. Locks: ready rows, then leases, then the outcomes of the
-- causes, shared: a retry of a cause that waits for them sees what was cancelled. All of them without waiting.
create or replace function queues.cancel_chores(chores bigint[], now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ids constant uuid[] := array(
    select distinct c.task_id from queues.chore c where c.kind = 'c' and c.chore_id = any (chores));
  _ready constant uuid[] := array(
    select r.task_id from queues.ready r where r.task_id = any (_ids) order by r.task_id for update skip locked);
  _held constant uuid[] := array(
    select l.task_id from queues.lease l where l.task_id = any (_ids) order by l.task_id for update skip locked);
  _causes constant uuid[] := array(
    select o.task_id from queues.outcome o
    where o.task_id = any (array(
        select c.cause_id from queues.chore c where c.kind = 'c' and c.chore_id = any (chores) and c.cause <> 's'))
      and o.status <> 'succeeded'
    order by o.task_id for share skip locked);
  _valid bigint[];
  _void bigint[];
  _kept uuid[];
  _waited uuid[];
  _ends queues.lease_end[];
  _done integer;
begin
  -- A separate statement, so that it sees what was committed before those rows were locked.
  select coalesce(array_agg(c.chore_id) filter (where c.verdict), '{}'),
    coalesce(array_agg(c.chore_id) filter (where not c.verdict), '{}'),
    array_agg(c.task_id) filter (where not c.verdict)
  into _valid, _void, _kept
  from (
    select c.chore_id, c.task_id, case when c.cause = 's' or c.cause_id = any (_causes) then true
      when (select o.status = 'succeeded' from queues.outcome o where o.task_id = c.cause_id) then false
      when (select true from queues.outcome o where o.task_id = c.cause_id) then null
      else not queues.is_open(c.cause_id) end as verdict
    from queues.chore c where c.kind = 'c' and c.chore_id = any (chores)) c;

  with gone as (
    delete from queues.ready r where r.task_id = any (_ready) and r.task_id = any (array(
      select c.task_id from queues.chore c where c.kind = 'c' and c.chore_id = any (_valid)))
    returning r.task_id, r.attempt),
  written as (
    insert into queues.outcome (task_id, finished_at, attempt, status, reason, cause, cause_id)
    select g.task_id, cancel_chores.now, g.attempt, 'cancelled', c.reason, c.cause, c.cause_id
    from gone g
    cross join lateral (
      select c.reason, c.cause, c.cause_id from queues.chore c
      where c.kind = 'c' and c.task_id = g.task_id and c.chore_id = any (_valid) order by c.chore_id limit 1) c
    on conflict do nothing
    returning task_id, attempt, reason),
  recorded as (
    insert into queues.act (task_id, act, occurred_at, attempt, actor, reason)
    select w.task_id, 'cancelled', cancel_chores.now, w.attempt, 'holdfast', w.reason from written w)
  select coalesce(array_agg(w.task_id), '{}') into _waited from written w;
  select array_agg(row(l.task_id, null, 'cancelled', null, null, l.started_at, null, c.reason, c.cause, c.cause_id,
    'cancelled', null, null, null, null, false, false)::queues.lease_end)
  into _ends
  from queues.lease l
  cross join lateral (
    select c.reason, c.cause, c.cause_id from queues.chore c
    where c.kind = 'c' and c.task_id = l.task_id and c.chore_id = any (_valid) order by c.chore_id limit 1) c
  where l.task_id = any (_held);
  if _ends is not null or _waited <> '{}' then
    perform queues.end_leases(_ends, now, _waited);
  end if;

  -- One that is in neither table now is moving between them, unless it has ended or was deleted.
  delete from queues.chore c
  where c.kind = 'c' and c.chore_id = any (chores) and (c.chore_id = any (_void)
    or (select true from queues.outcome o where o.task_id = c.task_id limit 1)
    or (select true from queues.deletion d where d.task_id = c.task_id limit 1)
    or (select true from queues.task t where t.task_id = c.task_id limit 1) is null);
  get diagnostics _done = row_count;
  if _kept is not null then  -- a task that comes after others waits for them again
    perform queues.settle_joins('{}', _kept, now);
  end if;
  return _done;
end
$$;
