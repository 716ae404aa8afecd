-- What people and applications do with one task: cancel, delete, restore, retry, replay and move it. Also the functions
-- that get hold of the row of a task, and that move one.
-- Invariant: a task has exactly one row in queues.ready, queues.lease or queues.outcome, or none and a deletion that
-- keeps its place. An act is decided on the row that is locked, never on one that was only read, and recorded with who
-- did it and why. A ready row is never updated: move_ready deletes it and inserts another.
-- Lock order: ready, lease, outcome, deletion, key. lock_task waits for the row and looks again if it has moved;
-- act_on_tasks takes several tasks by task_id. What follows an act on other tasks skips locked rows or leaves chores;
-- only a retry waits for the outcomes of tasks that it brings back.
-- At the same time: the session that locks the row first decides. A cancel that waited for a claim finds the lease and
-- cancels the running task; a worker that reports during an open cancel gets busy, and afterwards cancelled. A delete
-- of a running task marks the lease as well, because a finish that waited for it sees only that row anew.
-- Explained in docs/design/state.md.

-- Cancels, retries, deletes, restores or reschedules up to 50 tasks, each by the function for one task and with its
-- rights, and returns what became of each: a task that is not in a status for it, or that is refused, is not changed,
-- and problem says why. Tasks that the session may not change are left out. A dry run takes up to 10,000 and changes
-- nothing. Each task is a subtransaction: PostgreSQL keeps 64 of a transaction in memory, and with more of them, every
-- other session that looks at such a row has to read pg_subtrans.
-- For holdfast_client (cancel and reschedule tasks of its namespace) and holdfast_operator; it has the rights of the
-- caller. Locks: those of the functions for one task, by task_id; a task that another transaction holds for half a
-- second is not changed.
create or replace function queues.act_on_tasks(
  act text, task_ids uuid[], reason text default null, run_at timestamptz default null, dry_run boolean default false)
returns table (task_id uuid, changed boolean, status text, problem text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _most constant integer := case when coalesce(dry_run, false) then 10000 else 50 end;
  _operates constant boolean := queues.has_role('operator');
  _allowed constant text[] := case act_on_tasks.act
    when 'cancel' then array['scheduled', 'suspended', 'pending', 'retrying', 'claimed', 'running']
    when 'reschedule' then array['scheduled', 'suspended', 'pending', 'retrying']
    when 'retry' then array['failed', 'dead_letter', 'cancelled'] end;
begin
  if act_on_tasks.act is null or act_on_tasks.act not in ('cancel', 'retry', 'delete', 'restore', 'reschedule') then
    raise exception using errcode = 'QF400', message = format('act %s is unknown', to_json(act_on_tasks.act)),
      hint = 'Allowed: cancel, retry, delete, restore, reschedule.';
  elsif act_on_tasks.act = 'reschedule' and run_at is null then
    raise exception using errcode = 'QF400', message = 'run_at is required to reschedule tasks';
  elsif task_ids is null or cardinality(task_ids) > _most then
    raise exception using errcode = 'QF413',
      message = format('task_ids must be an array of at most %s elements', _most);
  end if;
  for task_id, status, problem in
    select s.task_id, s.status, case
      when (s.deleted_at is null) = (act_on_tasks.act = 'restore')
      then case when s.deleted_at is null then 'it is not deleted' else 'it is deleted' end
      when s.status <> all (_allowed) then format('it is %s', s.status) end
    from queues.tasks_of(task_ids) s
    where _operates or s.namespace = queues.namespace()
    order by s.task_id
  loop
    changed := problem is null;
    if changed and not coalesce(dry_run, false) then
      begin
        -- Not one expression: PostgreSQL would check the rights on all of these functions.
        if act_on_tasks.act = 'cancel' then
          status := queues.cancel(task_id, reason);
          changed := status = 'cancelled';
        elsif act_on_tasks.act = 'retry' then
          status := queues.retry(task_id, reason);
        elsif act_on_tasks.act = 'delete' then
          status := queues.delete_task(task_id, reason);
        elsif act_on_tasks.act = 'restore' then
          status := queues.restore_task(task_id, reason);
        else
          status := queues.reschedule(task_id, run_at, reason);
          changed := status = any (_allowed);
        end if;
        problem := case when not changed then format('it is %s', status) end;
      exception
        when lock_not_available then
          changed := false;
          problem := 'another transaction holds it; try again';
        when sqlstate 'QF404' or sqlstate 'QF409' or sqlstate 'QF412' then
          changed := false;
          problem := sqlerrm;
      end;
    end if;
    return next;
  end loop;
end
$$;

-- Cancels a task that has not ended and returns its status: cancelled, or how it had already ended. A running task is
-- cancelled at once; its worker learns of it at its next heartbeat and can no longer change it.
-- For holdfast_client (tasks of its namespace) and holdfast_operator. Locks: the ready row, else the lease, else the
-- deletion.
create or replace function queues.cancel(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform queues.check_task_owner(task_id);
  return queues.cancel_now(task_id, reason);
end
$$;

-- Refuses a task that does not exist or that the session may not change. Both give the same error, so that ids cannot
-- be probed. An operator may change every task, and so may a worker's handlers; a client, and a function of a process,
-- may change those of its namespace.
create or replace function queues.check_task_owner(task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from queues.task t
  where t.task_id = check_task_owner.task_id
    and (t.namespace = queues.namespace() or queues.has_role('operator')
      or queues.has_role('worker'));
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(task_id::text, 'null')),
      hint = 'Look for it with queues.task_status; it may have been removed by retention, or belong to another '
        'namespace.';
  end if;
end
$$;

-- Cancels a task that has not ended and returns its status, as cancel does for a caller who may.
-- Internal: called by cancel, find_unique and cancel_replaced. Locks: the ready row, else the lease, else the deletion;
-- by lock_task.
create or replace function queues.cancel_now(task_id uuid, reason text default null)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _found record;
  _token bigint;
  _attempt integer;
  _worker_id text;
begin
  reason := left(reason, 2000);
  select l.* into _found from queues.lock_task(task_id, array['ready', 'lease', 'deletion']) l;
  if _found.place = 'ready' then
    with waiting as (
      delete from queues.ready r where r.task_id = cancel_now.task_id returning r.task_id, r.attempt)
    insert into queues.outcome (task_id, finished_at, attempt, status, reason)
    select w.task_id, _now, w.attempt, 'cancelled', cancel_now.reason from waiting w;
  elsif _found.place = 'lease' then
    with held as (
      delete from queues.lease l where l.task_id = cancel_now.task_id returning l.*)
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select h.task_id, h.token, h.claimed_at, h.started_at, _now, h.attempt, 'cancelled', h.worker_id,
      cancel_now.reason from held h
    returning token, attempt, worker_id into _token, _attempt, _worker_id;
  elsif _found.place = 'deletion' then
    _attempt := _found.attempt;
    update queues.deletion d set parked_run_at = null, parked_attempt = null where d.task_id = cancel_now.task_id;
    insert into queues.outcome (task_id, finished_at, attempt, status, reason)
    values (task_id, _now, _attempt, 'cancelled', reason);
  else
    return coalesce(_found.status, queues.status_now(task_id));
  end if;

  insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason)
  values (task_id, 'cancelled', _now, _token, _attempt, _worker_id, queues.actor(), reason);
  perform queues.bring_back(array[task_id]);
  perform queues.end_waits(array[task_id]);
  perform queues.notify_waiters(array[task_id]);
  perform queues.call_error_handlers(array[task_id], 'cancelled', format('it was cancelled by %s', session_user)
    || coalesce(': ' || reason, ''), true, _token is not null, _now);
  perform queues.settle_joins(array[task_id], '{}', _now);
  return 'cancelled';
end
$$;

-- Waits for a task: locks the row that says where it stands, if that is in one of the given places, and returns what
-- the row says. The places are ready, lease, outcome, and deletion, for a task that was deleted while it waited. If the
-- task is elsewhere, its row is only read, and status is the one that it gives. Without a task, everything is null.
-- Internal. Locks: the ready row, the lease, the outcome or the deletion; waits, then looks again.
--
-- The row of a task moves: a transaction deletes it and inserts another one, in the same table (move_ready) or in the
-- next. A session that has waited for the old row finds it deleted, and its statement does not see the new one. So
-- every function that waits for a row of a task gets it here, where it is looked for until it is found. A function that
-- skips rows of other transactions instead says in its header who looks again. Each round waits for as long as
-- lock_timeout allows. After a hundred rounds it ends with QF503.
create or replace function queues.lock_task(
  task_id uuid, places text[], out place text, out run_at timestamptz, out attempt integer, out status text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  for _round in 1..100 loop
    if 'ready' = any (places) then
      -- Most tasks that somebody waits for are there.
      select 'ready', r.run_at, r.attempt into place, run_at, attempt from queues.ready r
      where r.task_id = lock_task.task_id for update;
      if found then
        return;
      end if;
    end if;
    -- One statement: between two, the task could move and be found in neither table.
    select case when r.task_id is not null then 'ready' when l.task_id is not null then 'lease'
        when o.task_id is not null then 'outcome' when d.task_id is not null then 'deletion' end,
      coalesce(r.run_at, d.parked_run_at), coalesce(r.attempt, l.attempt, o.attempt, d.parked_attempt),
      queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
        coalesce(r.run_at, d.parked_run_at), queues.clock(),
        (select true from queues.wait w where w.task_id = t.task_id limit 1))
    into place, run_at, attempt, status
    from queues.task t
    left join queues.ready r on r.task_id = t.task_id
    left join queues.lease l on l.task_id = t.task_id
    left join queues.outcome o on o.task_id = t.task_id
    left join queues.deletion d on d.task_id = t.task_id and d.parked_run_at is not null
    where t.task_id = lock_task.task_id;
    if (place = any (places)) is not true then
      return;
    elsif place = 'ready' then
      continue;
    elsif place = 'lease' then
      select l.attempt into attempt from queues.lease l where l.task_id = lock_task.task_id for update;
    elsif place = 'outcome' then
      select o.attempt into attempt from queues.outcome o where o.task_id = lock_task.task_id for update;
    else
      select d.parked_run_at, d.parked_attempt into run_at, attempt from queues.deletion d
      where d.task_id = lock_task.task_id and d.parked_run_at is not null for update;
    end if;
    if found then
      return;
    end if;
  end loop;
  raise exception using errcode = 'QF503', message = format('task %s changes state too fast; try again', task_id);
end
$$;

-- Returns the status of a task, in the one word that users see. No pinned path, so that a view can read it.
create or replace function queues.status_of(
  outcome_status text, claimed_at timestamptz, started_at timestamptz, attempt integer, run_at timestamptz,
  now timestamptz, waits boolean default false)
returns text
language sql immutable parallel safe
as $$
  select case
    when outcome_status is not null then outcome_status
    when claimed_at is not null then case when started_at is null then 'claimed' else 'running' end
    when attempt > 0 then 'retrying'
    when run_at > now and waits then 'suspended'
    when run_at > now then 'scheduled'
    else 'pending' end
$$;

-- Returns the status of one task; raises an error if retention has removed it meanwhile.
create or replace function queues.status_now(task_id uuid)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _status constant text := (queues.lock_task(task_id, '{}')).status;
begin
  if _status is null then
    raise exception using errcode = 'QF404', message = format('there is no task %s', task_id),
      hint = 'It has just been removed by retention.';
  end if;
  return _status;
end
$$;

-- Soft-deletes a task: it is never claimed again, its key is free, and it can be restored. Works in every status. A
-- running task may still end; its worker is told at its next heartbeat. Returns deleted.
-- For holdfast_operator. Locks: the ready row, else the lease, else the outcome, by lock_task; then the deletion, then
-- the key.
create or replace function queues.delete_task(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _place text;
  _waiting queues.ready;
begin
  perform queues.check_task_owner(task_id);
  reason := left(reason, 2000);
  if exists (select from queues.deletion d where d.task_id = delete_task.task_id) then
    return 'deleted';
  end if;
  select l.place into _place from queues.lock_task(task_id, array['ready', 'lease', 'outcome']) l;
  if _place = 'ready' then
    delete from queues.ready r where r.task_id = delete_task.task_id returning r.* into _waiting;
  elsif _place = 'lease' then
    update queues.lease l set deleted = true where l.task_id = delete_task.task_id;
  elsif _place = 'outcome' then
    -- An update and not only a lock, so that a retry with an older snapshot, which does not see the deletion, fails.
    update queues.outcome o set status = o.status where o.task_id = delete_task.task_id;
  elsif _place is null then
    perform queues.status_now(task_id);
  end if;

  insert into queues.deletion (task_id, deleted_at, deleted_by, reason, parked_run_at, parked_attempt)
  values (task_id, _now, queues.actor(), reason, _waiting.run_at, _waiting.attempt)
  on conflict do nothing;
  if found then
    if _waiting.task_id is not null then
      perform queues.bring_back(array[task_id]);
    end if;
    delete from queues.task_key k using queues.task t
    where t.task_id = delete_task.task_id and k.type = t.type and k.idempotency_key = t.idempotency_key
      and k.namespace = t.namespace
      and k.task_id = t.task_id;
    insert into queues.act (task_id, act, occurred_at, actor, reason)
    values (task_id, 'deleted', _now, queues.actor(), reason);
    perform queues.mark_joins(array[task_id]);
  end if;
  return 'deleted';
end
$$;

-- Enqueues the same spec again as a new task, whose metadata names the original as replay_of: a run that went on by
-- ctx.continue_as begins with its first generation. The new task has a full set of attempts and belongs to the
-- namespace of the original. Returns its id.
-- For holdfast_operator. Locks: no existing rows.
create or replace function queues.replay(task_id uuid, reason text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _task queues.task;
begin
  perform queues.check_task_owner(task_id);
  select * into _task from queues.task t where t.task_id = replay.task_id;
  return (
    select i.task_id from queues.insert_tasks(
      jsonb_build_array(jsonb_build_object('type', _task.type, 'payload',
        queues.first_payload(_task.task_id), 'queue', _task.queue,
        'priority', _task.priority, 'max_attempts', _task.max_attempts, 'executor', _task.executor,
        'timeout', extract(epoch from _task.timeout)::text, 'lease', extract(epoch from _task.lease)::text,
        'deadline', extract(epoch from _task.deadline)::text,
        'concurrency_key', _task.concurrency_key,
        'metadata', coalesce(_task.metadata, '{}') || jsonb_build_object('replay_of', _task.task_id)
          || case when reason is null then '{}' else jsonb_build_object('replay_reason', left(reason, 2000)) end)),
      for_process => true, namespace => _task.namespace) i);
end
$$;

-- Moves a waiting task to another time and returns its status; other tasks are not changed.
-- For holdfast_client (tasks of its namespace), holdfast_process and holdfast_operator. Locks: the ready row, by
-- lock_task; then as move_waiting.
create or replace function queues.reschedule(task_id uuid, run_at timestamptz, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _place text;
  _status text;
begin
  perform queues.check_task_owner(task_id);
  perform queues.parse_time('run_at', coalesce(to_jsonb(reschedule.run_at) #>> '{}', ''), _now);
  select l.place, l.status into _place, _status from queues.lock_task(task_id, array['ready']) l;
  if _place is distinct from 'ready' then
    return coalesce(_status, queues.status_now(task_id));
  end if;
  perform queues.move_waiting(task_id, run_at, reason, _now);
  return queues.status_now(task_id);
end
$$;

-- Moves a waiting task to another time, and records it.
-- Internal: called by reschedule, nudge, nudge_process and nudge_waiting, which have locked the ready row. Locks: the
-- wait of a task that comes after others.
create or replace function queues.move_waiting(task_id uuid, run_at timestamptz, reason text, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _place tid;
  _former timestamptz;
  _lane_id bigint;
  _until timestamptz;
  _waits boolean;
begin
  -- One that waits for its concurrency key may be claimed again.
  select r.ctid, r.run_at, queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace)
  into _place, _former, _lane_id
  from queues.ready r join queues.task t on t.task_id = r.task_id where r.task_id = move_waiting.task_id;
  -- A task that comes after others keeps waiting for them, and is not due before its new time. Read after the ready row
  -- was locked, which the end of the wait locks, too.
  select w.until into _until from queues.wait w
  where w.task_id = move_waiting.task_id and w.name = '' and w.policy is not null;
  _waits := found;
  if _waits then
    _former := _until;
    update queues.wait w set until = move_waiting.run_at where w.task_id = move_waiting.task_id and w.name = '';
  end if;
  perform queues.move_ready(array[_place], array[case when _waits then now + interval '90 years' else run_at end],
    array[_lane_id]);
  perform queues.bring_back(array[task_id]);
  -- Repeating the call, for example after a lost response, is not a second act.
  if run_at <> _former then
    insert into queues.act (task_id, act, occurred_at, actor, reason, data)
    values (task_id, 'rescheduled', now, queues.actor(), left(reason, 2000),
      jsonb_build_object('from', _former, 'to', run_at));
  end if;
  perform queues.wake_for(task_id);
end
$$;

-- Moves the ready rows at these places: each gets another time, another lane, or both; a null keeps what it has. A move
-- is a new row instead of an update, because claims rely on ready rows never moving. Whoever waits for the old row
-- finds it deleted: see lock_task.
-- Internal: called by every function that moves a waiting task; the caller has locked the rows.
create or replace function queues.move_ready(places tid[], run_ats timestamptz[], lanes bigint[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  with gone as (
    delete from queues.ready r where r.ctid = any (places)
    returning r.ctid as place, r.task_id, r.run_at, r.lane_id, r.attempt)
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select g.task_id, coalesce(m.run_at, g.run_at), coalesce(m.lane_id, g.lane_id), g.attempt
  from gone g join unnest(places, run_ats, lanes) m(place, run_at, lane_id) on m.place = g.place;
end
$$;

-- Undoes a soft delete and returns the status of the task. Refused if another task has taken its key.
-- For holdfast_operator. Locks: the lease, else the outcome, by lock_task; then the deletion, then the key.
create or replace function queues.restore_task(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _deletion queues.deletion;
  _task queues.task;
  _place text;
  _holder uuid;
begin
  perform queues.check_task_owner(task_id);
  reason := left(reason, 2000);
  select t.* into _task from queues.task t where t.task_id = restore_task.task_id;
  -- Locked before the deletion is read, deleted or not: a concurrent delete holds it until it commits.
  select l.place into _place from queues.lock_task(task_id, array['lease', 'outcome', 'deletion']) l;
  if _place is null or _place = 'ready' then
    return queues.status_now(task_id);
  end if;
  delete from queues.deletion d where d.task_id = restore_task.task_id returning d.* into _deletion;
  if not found then
    return queues.status_now(task_id);
  end if;
  update queues.lease l set deleted = null where l.task_id = restore_task.task_id and l.deleted;

  if _task.idempotency_key is not null then
    insert into queues.task_key (type, idempotency_key, namespace, task_id)
    values (_task.type, _task.idempotency_key, _task.namespace, task_id) on conflict do nothing;
    if not found then
      select k.task_id into _holder from queues.task_key k
      where k.type = _task.type and k.idempotency_key = _task.idempotency_key and k.namespace = _task.namespace;
      raise exception using errcode = 'QF409',
        message = format('task %s cannot be restored: its idempotency_key %s now belongs to task %s',
          task_id, to_json(_task.idempotency_key), coalesce(_holder::text, 'another')),
        hint = 'Delete that task first, or leave this one deleted.';
    end if;
  end if;
  if _deletion.parked_run_at is not null then
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    values (task_id, _deletion.parked_run_at,
      queues.lane_for(_task.queue, _task.type, _task.priority, _task.concurrency_key, _task.namespace),
      _deletion.parked_attempt);
    -- What it waits for may have come while nothing could wake it.
    insert into queues.chore (kind, added_at, task_id) select distinct 'w'::"char", _now, w.task_id from queues.wait w
    where w.task_id = restore_task.task_id;
  end if;
  insert into queues.act (task_id, act, occurred_at, actor, reason)
  values (task_id, 'restored', _now, queues.actor(), reason);
  perform queues.wake_for(task_id);
  return queues.status_now(task_id);
end
$$;

-- Gives a failed, dead or cancelled task a new set of attempts from now on, and returns its status: pending, or
-- suspended if a task that it comes after has not ended: then it waits again, under its condition. Tasks that were
-- cancelled because they come after it wait for it again, and so do children that ended with it.
-- For holdfast_operator. Locks: the outcome, by lock_task; then those of the tasks after it and of its children.
create or replace function queues.retry(task_id uuid, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _former queues.outcome;
  _waits boolean;
begin
  perform queues.check_task_owner(task_id);
  reason := left(reason, 2000);
  perform queues.lock_task(task_id, array['outcome']);
  delete from queues.outcome o
  where o.task_id = retry.task_id and o.status in ('failed', 'dead_letter', 'cancelled')
  returning o.* into _former;
  if not found then
    raise exception using errcode = 'QF412',
      message = format('task %s cannot be retried: it is %s', task_id, queues.status_now(task_id)),
      hint = 'Only tasks that are failed, dead_letter or cancelled can be retried.';
  end if;
  -- Read after the outcome was locked: delete_task holds it while it writes the deletion.
  if exists (select from queues.deletion d where d.task_id = retry.task_id) then
    raise exception using errcode = 'QF412', message = format('task %s is deleted and cannot be retried', task_id),
      hint = 'Restore it first.';
  end if;

  perform queues.check_memory(task_id);
  _waits := (select o.task_id is not null from queues.first_open_child(retry.task_id, '', 1) o);
  if _waits then
    perform queues.wait_for_others(array[task_id], true, _now);
  else
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select t.task_id, _now, queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace), 0
    from queues.task t where t.task_id = retry.task_id;
  end if;
  -- With the token, so that a worker that repeats its accepted report does not get lost.
  insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
  values (task_id, 'retried', _now, _former.token, _former.attempt, _former.worker_id, queues.actor(), reason,
    jsonb_build_object(
    'status', _former.status, 'reason', _former.reason, 'claimed_at', _former.claimed_at,
    'started_at', _former.started_at, 'finished_at', _former.finished_at));
  perform queues.revive_dependants(task_id, _now);
  perform queues.revive_children(task_id, _now);
  perform queues.wake_for(task_id);
  return case when _waits then 'suspended' else 'pending' end;
end
$$;

-- Returns whether the session may read all tasks; otherwise it may read those of its namespace.
create or replace function queues.may_read_all()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select queues.has_role('reader')
    or queues.has_role('worker')
$$;

-- Returns when a task with a deadline has to have ended. The deadline counts from the enqueue, or from the last retry
-- by hand, which would be of no use otherwise.
-- Internal: called by claim, explain and run_timeline.
create or replace function queues.end_of_life(task_id uuid, created_at timestamptz, deadline interval)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((
    select a.occurred_at from queues.act a where a.task_id = end_of_life.task_id and a.act = 'retried'
    order by a.act_id desc limit 1), created_at) + deadline
$$;

-- Returns whether a task matches the filters of a listing. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.matches(task queues.task, queue text, type_prefix text, since timestamptz,
  namespace text, spec_hash bytea default null, wanted queues.wanted_text default null)
returns boolean
language sql stable
as $$
  select (queue is null or task.queue = queue)
    and (type_prefix is null or pg_catalog.starts_with(task.type, type_prefix))
    and (since is null or task.created_at >= since)
    and (namespace is null or task.namespace = namespace)
    and (spec_hash is null or queues.spec_hash(task.type, task.executor, task.payload) = spec_hash)
    and (wanted is null or queues.contains(task, wanted))
$$;

-- Returns whether a task has what a search asks for: words in its id, type, keys or error messages, a last error of
-- this group, and a payload for which the JSON path finds something.
create or replace function queues.contains(task queues.task, wanted queues.wanted_text)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if wanted.path is not null and not coalesce(jsonb_path_exists(task.payload, wanted.path, '{}', true), false) then
    return false;
  end if;
  -- A group belongs to one type, so that the errors of others need not be read.
  if wanted.error_group is not null and (left(wanted.error_group::text, 8) <> left(md5(task.type), 8)
    or wanted.error_group is distinct from (
      select e.error_group from queues.error e where e.task_id = task.task_id order by e.error_id desc limit 1))
  then
    return false;
  end if;
  return wanted.words is null
    or strpos(lower(task.type), wanted.words) > 0
    or strpos(lower(task.idempotency_key), wanted.words) > 0
    or strpos(lower(task.concurrency_key), wanted.words) > 0
    or (wanted.words ~ '^[0-9a-f-]{6,36}$' and strpos(task.task_id::text, wanted.words) > 0)
    or (wanted.search_errors and exists (
      select from queues.error e where e.task_id = task.task_id and strpos(lower(e.message), wanted.words) > 0));
end
$$;
