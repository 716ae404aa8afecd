-- Chores: what a transaction leaves to be done after its commit, because it must not wait for rows of other tasks, or
-- cannot see yet what another transaction is about to commit. The leader does them, each kind in a transaction of its
-- own, in the name of the engine: to wake runs (signals.sql), to look at joins (joins.sql), and to cancel tasks, which
-- is here.
-- Invariant: a chore is deleted only after its task was looked at, in a statement that began after the chore was seen.
-- So of two transactions that do not see each other, the one that commits last is followed by a look that sees both.
-- What cannot be done now stays for a later look.
-- Lock order: chores by number, then rows of queues.wait, then ready rows; to cancel: ready rows, leases, then the
-- outcomes of the causes, shared. Nothing here waits for a row, so a transaction of an application that stays open
-- delays only its own tasks.
-- At the same time: any number of sessions may do chores; each takes those that no other has locked. Two rows for one
-- task do no harm, as the second look finds nothing to do. A retry of the cause of a cancellation either comes first,
-- and then the chore is dropped or left, or waits for this transaction and brings the task back.

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
  if max_chores is null or max_chores not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_chores must be between 1 and 10000';
  elsif do_chores.kind = 'join' then
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
  _ended uuid[];
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
  freed as (
    delete from queues.lease l where l.task_id = any (_held) and l.task_id = any (array(
      select c.task_id from queues.chore c where c.kind = 'c' and c.chore_id = any (_valid)))
    returning l.*),
  ended as materialized (
    select g.task_id, null::bigint as token, null::timestamptz as claimed_at, null::timestamptz as started_at,
      g.attempt, null::text as worker_id from gone g
    union all
    select f.task_id, f.token, f.claimed_at, f.started_at, f.attempt, f.worker_id from freed f),
  written as (
    insert into queues.outcome (
      task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, reason, cause, cause_id)
    select e.task_id, e.token, e.claimed_at, e.started_at, cancel_chores.now, e.attempt, 'cancelled', e.worker_id,
      c.reason, c.cause, c.cause_id
    from ended e
    cross join lateral (
      select c.reason, c.cause, c.cause_id from queues.chore c
      where c.kind = 'c' and c.task_id = e.task_id and c.chore_id = any (_valid) order by c.chore_id limit 1) c
    on conflict do nothing
    returning task_id, token, attempt, worker_id, reason),
  recorded as (
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason)
    select w.task_id, 'cancelled', cancel_chores.now, w.token, w.attempt, w.worker_id, 'holdfast', w.reason
    from written w)
  select coalesce(array_agg(w.task_id), '{}') into _ended from written w;

  -- One that is in neither table now is moving between them, unless it has ended or was deleted.
  delete from queues.chore c
  where c.kind = 'c' and c.chore_id = any (chores) and (c.task_id = any (_ended)
    or c.chore_id = any (_void)
    or (select true from queues.outcome o where o.task_id = c.task_id limit 1)
    or (select true from queues.deletion d where d.task_id = c.task_id limit 1)
    or (select true from queues.task t where t.task_id = c.task_id limit 1) is null);
  get diagnostics _done = row_count;
  if _kept is not null then  -- a task that comes after others waits for them again
    perform queues.settle_joins('{}', _kept, now);
  end if;
  if _ended <> '{}' then
    perform queues.bring_back(_ended);
    perform queues.end_waits(_ended);
    perform queues.settle_joins(_ended, '{}', now);
    perform queues.notify_waiters(_ended);
    perform queues.call_error_handlers(_ended, 'cancelled', 'the run that waited for it has ended', true, true, now);
  end if;
  return _done;
end
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
