-- Tasks that come after others: `after`, chains, and batches with a task after them. Such a task is a ready row that is
-- due in 90 years, and a row of queues.wait with an empty name, whose pointer joins.sql moves.
-- Invariant: a task becomes due only when all tasks that queues.child lists for it have ended. If it needs their
-- success and one ended otherwise, it is cancelled instead, unless it was retried by hand. Once another task waits for
-- a task, that task cannot be made to wait itself, so no task waits for itself in a circle.
-- Lock order: nothing when it is enqueued, because no other session can see it yet. To add to a batch: the lease of the
-- running member, without waiting, then rows of queues.wait by task_id, waiting. To retry: outcomes, level by level and
-- by task_id, waiting.
-- At the same time: a task that ends before the commit of those that wait for it is found by a chore, after that
-- commit. While tasks are added to a batch, the task after it cannot begin: the member that adds them has not ended,
-- and a look at its join skips the locked row and leaves a chore. A retry that brings tasks back waits for their
-- outcomes; those that have none any more were brought back by another one.
-- Explained in docs/design/runs.md.

-- Enqueues a batch like enqueue_many. Each of its tasks waits until all the given tasks have ended. With the condition
-- succeeded, it is cancelled if one of them ends otherwise, and so are those after it; with ended, it runs in any case.
-- Without tasks to wait for, it is due at once.
-- For holdfast_client and holdfast_process. Locks: as enqueue_many. Security invoker, so that the rights of the actual
-- caller apply.
create or replace function queues.enqueue_after(tasks jsonb, after uuid[], condition text default 'succeeded')
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _arrangement constant jsonb := jsonb_build_object('after', coalesce(to_jsonb(after), '[]'), 'when', condition);
begin
  -- Anything else is refused by enqueue_many. The caller may not call check_batch.
  if jsonb_typeof(tasks) = 'array' and not jsonb_path_exists(tasks, 'strict $[*] ? (@.type() != "object")') then
    tasks := (
      select coalesce(jsonb_agg(t.element || _arrangement order by t.n), '[]')
      from jsonb_array_elements(tasks) with ordinality t(element, n));
  end if;
  return query select e.task_id, e.created from queues.enqueue_many(tasks) e;
end
$$;

-- Returns the tasks that a task comes after, in order: those of its batch, with those that were added since. None if
-- retention has removed it.
-- For holdfast_client (tasks of its namespace) and holdfast_operator. Locks: none.
create or replace function queues.batch_members(task_id uuid)
returns setof uuid
language sql stable security definer rows 100
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select c.child_id from queues.child c
  where c.parent_id = batch_members.task_id and c.generation = 1 and c.step = '' and (
    select true from queues.task t
    where t.task_id = batch_members.task_id
      and (t.namespace = queues.namespace() or queues.has_role('operator')))
  order by c.number;
$$;

-- Makes tasks that have not begun wait until all the given tasks have ended, as enqueue_after does. A task for which
-- others wait already is refused, so that no task can wait for itself. Those tasks are in the given namespace, or in
-- that of the session; an operator may name all.
-- Internal: called by insert_arranged, which has inserted the tasks: no other transaction can hold their ready rows.
create or replace function queues.hold_back(
  task_ids uuid[], after uuid[], condition text default 'succeeded', namespace text default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _far constant timestamptz := _now + interval '90 years';
  _namespace constant text := coalesce(hold_back.namespace, queues.namespace());
  _any constant boolean := hold_back.namespace is null and queues.has_role('operator');
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_children');
  _missing uuid;
  _places tid[];
  _run_ats timestamptz[];
begin
  if condition is null or condition not in ('succeeded', 'ended') then
    raise exception using errcode = 'QF400',
      message = format('condition is %s: expected succeeded or ended', to_json(condition));
  elsif cardinality(after) > _most then
    raise exception using errcode = 'QF413',
      message = format('a task can wait for at most %s others, not for %s', _most, cardinality(after));
  end if;
  select g.task_id into _missing from unnest(task_ids || after) g(task_id)
  where (
    select true from queues.task t
    where t.task_id = g.task_id and (_any or t.namespace = _namespace) limit 1) is null limit 1;
  if found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(_missing::text, 'null')),
      hint = 'Name tasks that were enqueued before, in the same namespace; retention may have removed it.';
  elsif coalesce(cardinality(after), 0) = 0 then
    return;
  end if;
  select g.task_id into _missing from unnest(task_ids) g(task_id)
  where (select true from queues.ready r where r.task_id = g.task_id and r.attempt = 0 limit 1) is null
    or (select true from queues.child c where c.child_id = g.task_id and c.step = '' limit 1)
    or (select true from queues.wait w where w.task_id = g.task_id limit 1) limit 1;
  if found then
    raise exception using errcode = 'QF412',
      message = format('task %s cannot wait for others: it has begun, or others wait for it already', _missing),
      hint = 'Name the tasks to wait for when it is enqueued.';
  end if;

  insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent, needs_success)
  select t.task_id, '', a.n, a.task_id, true, false, condition = 'succeeded'
  from (select distinct g.task_id from unnest(task_ids) g(task_id)) t
  cross join unnest(after) with ordinality a(task_id, n);
  insert into queues.wait (task_id, name, until, on_task, number, policy)
  select r.task_id, '', r.run_at, after[1], 1, condition from queues.ready r where r.task_id = any (task_ids);
  select array_agg(r.ctid), array_agg(_far) into _places, _run_ats from queues.ready r where r.task_id = any (task_ids);
  perform queues.move_ready(_places, _run_ats, null);
  -- Those that have ended before are seen now, by the first 1,000; those that end until the commit are seen after it.
  -- One of them that did not succeed leads to a cancellation by the engine: this transaction may stay open, and must
  -- not hold that one.
  insert into queues.chore (kind, added_at, task_id)
  select distinct 'w'::"char", _now, g.task_id from unnest(task_ids) g(task_id);
  perform queues.settle_joins('{}', task_ids[:1000], _now);
end
$$;

-- Brings back tasks that were cancelled because they come after this one, which is retried, and those after them. Those
-- that were only to be cancelled stay: see cancel_chores.
-- Internal: called by retry. Locks: outcomes, level by level, in the order of task_id.
create or replace function queues.revive_dependants(task_id uuid, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _level uuid[] := array[task_id];
begin
  loop
    _level := array(
      select o.task_id from queues.outcome o
      where o.task_id = any (array(
          select c.parent_id from queues.child c where c.child_id = any (_level) and c.step = ''))
        and o.status = 'cancelled' and o.cause = 'd'
        and (select true from queues.deletion d where d.task_id = o.task_id limit 1) is null
      order by o.task_id for update);
    exit when _level = '{}';
    with gone as (
      delete from queues.outcome o where o.task_id = any (_level) returning o.*)
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
    select g.task_id, 'retried', revive_dependants.now, g.token, g.attempt, g.worker_id, queues.actor(),
      format('after: %s is retried', revive_dependants.task_id), jsonb_build_object(
        'status', g.status, 'reason', g.reason,
        'claimed_at', g.claimed_at, 'started_at', g.started_at, 'finished_at', g.finished_at)
    from gone g;
    perform queues.wait_for_others(_level, false, now);
  end loop;
end
$$;

-- Brings back children that were cancelled because this run, which is retried, had ended, and theirs. Those that the
-- run no longer waits for, or whose steps retention has removed, stay cancelled. Those that were only to be cancelled
-- stay as they are: see cancel_chores.
-- Internal: called by retry. Locks: outcomes, level by level, in the order of task_id.
create or replace function queues.revive_children(task_id uuid, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _level uuid[] := array[task_id];
  _children uuid[];
begin
  loop
    _children := array(
      select c.child_id from queues.child c
      where c.parent_id = any (_level) and c.generation = queues.current_generation(c.parent_id) and c.ends_with_parent
        and (
          select true from queues.step s
          where s.task_id = c.parent_id and s.generation = c.generation and s.name = c.step limit 1) is null);
    _level := array(
      select o.task_id from queues.outcome o
      where o.task_id = any (_children) and o.status = 'cancelled' and o.cause = 'p'
        and o.cause_id = any (_level)
        and (select true from queues.deletion d where d.task_id = o.task_id limit 1) is null
        and (select true from queues.step s where s.task_id = o.task_id and s.kind = 'r' limit 1) is null
      order by o.task_id for update);
    exit when _level = '{}';
    with gone as (
      delete from queues.outcome o where o.task_id = any (_level) returning o.*)
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
    select g.task_id, 'retried', revive_children.now, g.token, g.attempt, g.worker_id, queues.actor(),
      format('its parent %s is retried', g.cause_id), jsonb_build_object(
        'status', g.status, 'reason', g.reason,
        'claimed_at', g.claimed_at, 'started_at', g.started_at, 'finished_at', g.finished_at)
    from gone g;
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select t.task_id, greatest(revive_children.now, t.run_at),
      queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace), 0
    from queues.task t where t.task_id = any (_level);
    perform queues.revive_dependants(l.task_id, revive_children.now), queues.wake_for(l.task_id)
    from unnest(_level) l(task_id);
  end loop;
end
$$;

-- Makes ended tasks wait again for the tasks that they come after, under their condition. If waived, it does not matter
-- how those ended that have ended already. Each task has a time of its own, before which it is not due.
-- Internal: called by retry and revive_dependants, which have removed the outcomes.
create or replace function queues.wait_for_others(task_ids uuid[], waived boolean, now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select t.task_id, wait_for_others.now + interval '90 years',
    queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace), 0
  from queues.task t where t.task_id = any (task_ids);
  insert into queues.wait (task_id, name, until, on_task, number, policy)
  select t.task_id, '', t.run_at, c.child_id, c.number, case when c.needs_success then 'succeeded' else 'ended' end
  from queues.task t
  cross join lateral (
    select c.child_id, c.number, c.needs_success from queues.child c
    where c.parent_id = t.task_id and c.generation = 1 and c.step = ''
      and c.number >= case when waived then (
        select o.number from queues.first_open_child(t.task_id, '', 1) o) else 1 end
    order by c.number limit 1) c
  where t.task_id = any (task_ids)
  on conflict do nothing;
  insert into queues.chore (kind, added_at, task_id)
  select 'w', wait_for_others.now, g.task_id from unnest(task_ids) g(task_id);
$$;

-- Returns the tasks that come after a running one and have not begun, and keeps them from beginning until the
-- transaction ends. One that was cancelled because another task before it failed counts, because a retry brings it
-- back. Refused if there is none.
-- Internal: called by start_children. Locks: rows of queues.wait, in the order of task_id.
create or replace function queues.lock_batch(member uuid)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _after uuid[];
begin
  _after := array(select distinct c.parent_id from queues.child c where c.child_id = member and c.step = '');
  if _after = '{}' then
    raise exception using errcode = 'QF412',
      message = format('task %s is in no batch: no task comes after it', member),
      hint = 'Enqueue it with enqueue_many(…, then=…), or name it in after=[…].';
  end if;
  perform from queues.wait w where w.task_id = any (_after) and w.name = '' order by w.task_id for update;
  -- A separate statement, so that it sees what was committed before the lock was granted.
  _after := array(
    select a.task_id from unnest(_after) a(task_id)
    where (select true from queues.wait w where w.task_id = a.task_id and w.name = '')
      or (select true from queues.outcome o
        where o.task_id = a.task_id and o.status = 'cancelled' and o.cause = 'd')
    order by a.task_id);
  if _after = '{}' then
    raise exception using errcode = 'QF412',
      message = format('the batch of task %s is closed: the task after it has begun or ended', member),
      hint = 'Add tasks before the last task of the batch has ended.';
  end if;
  return _after;
end
$$;

-- Lets tasks wait for further ones, which were enqueued in this transaction or are in the batch already. Others are
-- refused: they could wait for the task after the batch themselves.
-- Internal: called by start_children, which has locked the batch. Locks: none.
create or replace function queues.extend_batch(after uuid[], task_ids uuid[], created boolean[], max_tasks bigint)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _task_id uuid;
  _last integer;
  _new uuid[];
begin
  foreach _task_id in array after loop
    select coalesce(max(c.number), 0) into _last from queues.child c
    where c.parent_id = _task_id and c.generation = 1 and c.step = '';
    _new := array(
      select a.task_id from unnest(task_ids, created) with ordinality a(task_id, created, n)
      where a.created or (
        select true from queues.child c
        where c.child_id = a.task_id and c.parent_id = _task_id and c.generation = 1 and c.step = '' limit 1) is null
      order by a.n);
    if (select bool_or(not a.created) from unnest(task_ids, created) a(task_id, created)
        where a.task_id = any (_new)) then
      raise exception using errcode = 'QF412',
        message = format('task %s was enqueued before, and not in this batch', (
          select a.task_id from unnest(task_ids, created) a(task_id, created)
          where a.task_id = any (_new) and not a.created limit 1)),
        hint = 'Add new tasks: give it another key, or none.';
    elsif _last + cardinality(_new) > max_tasks then
      raise exception using errcode = 'QF413',
        message = format('the batch has %s tasks; with %s more it would have more than the %s allowed', _last,
          cardinality(_new), max_tasks);
    end if;
    insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent, needs_success)
    select _task_id, '', _last + n.n, n.task_id, true, false, (
      select c.needs_success from queues.child c
      where c.parent_id = _task_id and c.generation = 1 and c.step = '' order by c.number limit 1)
    from unnest(_new) with ordinality n(task_id, n);
  end loop;
end
$$;
