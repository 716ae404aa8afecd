-- The end of an attempt: the worker reports, and the lease becomes an outcome, a ready row with another time, or the
-- next generation of the run. All ends of leases but the fast one share end_leases, which a release, a sweep and the
-- cancellation of chores call as well. What follows the end of any task is in notify_waiters.
-- Invariant: only the holder of the lease, with its token, can settle an attempt, and only once. The lease is removed
-- and what the task becomes is written in one statement. A repeated report changes nothing and says so, and no content
-- of a report keeps a task from ending.
-- Lock order: leases by task_id, without waiting; then deletions of tasks that were deleted while they ran. What
-- follows for other tasks, clients and supervisors skips locked rows or leaves chores. To replace or delete the run's
-- own rows of queues.wait, it waits for a transaction that moves a pointer there.
-- At the same time: if a transaction has locked the lease, for example to cancel the task, the verdict is busy, nothing
-- is written, and the other results of the call are settled. If a sweep, a cancel or another worker has ended the
-- lease, the verdict says lost, cancelled or already_done; it is read in a statement of its own, after the leases were
-- taken.
-- Explained in docs/design/state.md.

-- Settles a batch of results and returns a verdict for each: accepted, already_done, cancelled, lost or busy. Each
-- result is checked against its token, so a worker that lost its lease changes nothing. Repeating an accepted call also
-- changes nothing and returns already_done. If another transaction has locked the lease, the verdict is busy: nothing
-- is recorded, and the caller repeats the call. The content of a result or error is never a reason to refuse it. A
-- worker with looks_again claims after this call by itself: it is not notified that a limit has room for a due task.
-- For holdfast_worker. Locks: lease rows, without waiting.
create or replace function queues.finish(worker_id text, results jsonb, looks_again boolean default false)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  -- Strict comparison: a missing status, or one that is not text, is not a success. Null if it is not even an array.
  _mixed constant boolean := jsonb_path_exists(results,
    'strict $[*] ? (!(@.status == "succeeded") || (@.status == "succeeded") is unknown || exists (@.steps))',
    '{}', true);
  -- A success is an object.
  _checked constant boolean := case when _mixed is false and jsonb_array_length(results) <= 1000 then true
    else queues.check_batch('results', results) end;
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _looks_again constant text := case when looks_again then worker_id end;
  _settled record;
  _told boolean;
begin
  -- Assignments call a function without a statement around it, which would cost a tenth of a small finish.
  if _mixed then
    _settled := queues.settle_mixed(worker_id, results, _now, _looks_again);
  else
    _settled := queues.settle_succeeded(worker_id, results, _now);
    _told := queues.notify_waiters(_settled.accepted, _looks_again);
  end if;
  if cardinality(_settled.accepted) = jsonb_array_length(results) then
    return query select accepted.task_id, 'accepted' from unnest(_settled.accepted) accepted(task_id);
  else
    return query select v.task_id, v.verdict
      from queues.verdicts(worker_id, results, coalesce(_settled.places, '{}')) v;
  end if;
end
$$;

-- Settles results of every kind: decides what becomes of each task, and has end_leases write it. Returns the accepted
-- results and their positions.
-- Internal: called by finish. Locks: lease rows, without waiting.
create or replace function queues.settle_mixed(
  worker_id text, results jsonb, now timestamptz, looks_again text, out accepted uuid[], out places integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ends queues.lease_end[];
begin
  with given as materialized (
    select r.n::integer as n, r.task_id, r.token, queues.storable(r.result) as result, r.run_at, r.started_at, r.steps,
      r.ends_at,
      case when refused.why is null then r.status else 'failed' end as status,
      case when refused.why is null then queues.storable(r.error, 65536)
        else jsonb_build_object('kind', 'invalid_arguments', 'message', refused.why) end as error
    from rows from (jsonb_to_recordset(results) as (
        task_id uuid, token bigint, status text, result jsonb, error jsonb, run_at timestamptz, started_at timestamptz,
        steps jsonb, payload jsonb, ends_at timestamptz))
      with ordinality r(task_id, token, status, result, error, run_at, started_at, steps, payload, ends_at, n)
    cross join lateral (
      select case when r.status = 'continue' then queues.why_not_continue(r.payload) end as why) refused
    order by r.task_id),
  held as materialized (
    select g.n, g.task_id, g.token, g.status, g.result, g.error, g.steps, l.attempt, l.generation,
      coalesce(l.started_at, greatest(l.claimed_at,
        least(coalesce(g.started_at, l.claimed_at), settle_mixed.now))) as started_at,
      -- A task with a deadline is due at the latest then, so that it ends. The function ignores a null.
      least(case when g.run_at > settle_mixed.now and g.run_at < settle_mixed.now + interval '100 years' then g.run_at
        when g.run_at is null and g.status = 'retry' then settle_mixed.now + queues.backoff(l.attempt)
        else settle_mixed.now end, g.ends_at) as run_at
    from given g
    cross join lateral (
      select l.claimed_at, l.started_at, l.attempt, l.generation from queues.lease l
      where l.task_id = g.task_id and l.token = g.token and l.worker_id = settle_mixed.worker_id
      for update skip locked) l
    where g.status in ('succeeded', 'failed', 'cancelled', 'retry', 'snooze', 'suspend', 'continue')),
  settled as (
    select f.*, case f.status when 'retry' then case when t.used >= t.max_attempts then 'dead_letter' end
      when 'snooze' then null when 'suspend' then null when 'continue' then null else f.status end as ending,
      -- A snooze gives the attempt back. A run that is suspended or goes on has come as far as it could.
      case f.status when 'snooze' then f.attempt - 1 when 'suspend' then 0 when 'continue' then 0 else t.used
        end as used,
      f.status in ('retry', 'failed') or f.status = 'cancelled' and f.error is not null as failed
    from held f
    left join lateral (
      select t.max_attempts, queues.attempts_used(f.task_id, f.token, f.attempt, f.generation, f.steps) as used
      from queues.task t where t.task_id = f.task_id and f.status = 'retry' offset 0) t on true)
  select array_agg(row(s.task_id, s.n, s.ending, s.used, s.run_at, s.started_at, s.result,
    queues.error_message(s.error, null), null, null,
    case s.status when 'snooze' then 'snoozed' when 'suspend' then 'suspended' when 'continue' then 'continued' end,
    case when s.status in ('snooze', 'suspend') then jsonb_build_object('run_at', s.run_at)
      when s.status = 'continue' then jsonb_build_object('generation', coalesce(s.generation, 1) + 1) end
      || case when s.error is null then '{}' else jsonb_build_object('kind', queues.error_kind(s.error, null)) end,
    case when s.failed then queues.error_kind(s.error, 'handler_error') end,
    case when s.failed then queues.error_message(s.error, 'no message') end, s.error, false,
    -- The worker has left these to others, which learn now when they are due.
    s.status = 'snooze'
      and s.error ->> 'kind' in ('no_handler_registered', 'executor_not_available', 'executor_failed')
      and s.run_at <= settle_mixed.now + interval '6 seconds')::queues.lease_end order by s.task_id)
  into _ends from settled s;
  if _ends is not null then
    select e.task_ids, e.places into accepted, places
    from queues.end_leases(_ends, now, '{}', results, looks_again) e;
  end if;
end
$$;

-- Ends leases that the caller has locked: removes them, writes what becomes of their tasks, and does what follows for
-- others. This is the only end of a lease, but for settle_succeeded, which is this for tasks that all succeeded, and
-- cancel_now. Of each end, status is that of the outcome, or null if the task is ready again, at run_at and with so
-- many attempts used; n is its place among the reports. waited are tasks that ended without a lease. looks_again is a
-- worker that claims after this call by itself. Returns the tasks and their places: a report may name one twice.
create or replace function queues.end_leases(
  ends queues.lease_end[], now timestamptz, waited uuid[] default '{}', reports jsonb default null,
  looks_again text default null, out task_ids uuid[], out places integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _told uuid[];
  _succeeded uuid[];
  _lost uuid[];
  _cancelled uuid[];
  _continued integer[];
  _suspended integer[];
  _parked uuid[];
  _awaited uuid[];
  _unbegun uuid[];
  _dead uuid[];
  _swept uuid[];
  _unsent uuid[];
  _waking uuid[];
begin
  with ending as materialized (
    select e.* from unnest(ends) e),
  freed as (
    delete from queues.lease l using ending e
    where l.task_id = any (array(select e.task_id from ending e)) and l.task_id = e.task_id
    returning l.token, l.claimed_at, l.lane_id, l.attempt, l.deleted, l.awaited, l.worker_id, l.generation, e.*),
  settled as materialized (
    select f.* from freed f
    -- A lease beside an outcome or a ready row, which only a repair by hand can leave, must not stop the others.
    where f.n is not null or (select true from queues.outcome o where o.task_id = f.task_id limit 1) is null
      and (select true from queues.ready r where r.task_id = f.task_id limit 1) is null),
  written as (
    -- If it was recovered, without the token, so that a worker that reports later gets lost, not already_done.
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id,
      reason, result, cause, cause_id)
    select s.task_id, case when not s.recovered then s.token end, s.claimed_at, s.started_at, end_leases.now, s.attempt,
      s.status, s.worker_id, case when s.status <> 'succeeded' then s.reason end, s.result, s.cause, s.cause_id
    from settled s where s.status is not null),
  given_back as (
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select s.task_id, s.run_at, s.lane_id, s.used from settled s where s.status is null),
  erred as (
    insert into queues.error (task_id, token, claimed_at, started_at, occurred_at, retry_at, attempt, recovered, kind,
      message, worker_id, detail, generation, error_group)
    select s.task_id, s.token, s.claimed_at, s.started_at, end_leases.now, case when s.status is null then s.run_at end,
      s.attempt, s.recovered, s.error_kind, s.error_message, s.worker_id, s.error, coalesce(s.generation, 1),
      queues.group_of_error(t.type, s.error_kind, s.error, s.error_message)
    from settled s
    cross join lateral (select t.type from queues.task t where t.task_id = s.task_id offset 0) t
    where s.error_kind is not null),
  recorded as (
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
    select s.task_id, s.act, end_leases.now, s.token, s.attempt, s.worker_id,
      case s.act when 'cancelled' then 'holdfast' else session_user end, s.reason,
      case when s.act <> 'cancelled' then
        jsonb_build_object('claimed_at', s.claimed_at, 'started_at', s.started_at) || coalesce(s.act_data, '{}') end
    from settled s where s.act is not null)
  select array_agg(s.task_id order by s.n), array_agg(s.n order by s.n),
    array_agg(s.task_id order by s.n) filter (where s.act is distinct from 'released'),
    array_agg(s.task_id) filter (where s.status = 'succeeded'),
    array_agg(s.task_id) filter (where s.status <> 'succeeded'),
    array_agg(s.task_id) filter (where s.act = 'cancelled'),
    array_agg(s.n) filter (where s.act = 'continued'), array_agg(s.n) filter (where s.act = 'suspended'),
    array_agg(s.task_id) filter (where s.status is null and s.deleted), array_agg(s.task_id) filter (where s.awaited),
    array_agg(s.task_id) filter (where s.act in ('snoozed', 'released') and s.used = 0),
    array_agg(s.task_id) filter (where s.status = 'dead_letter' and not s.recovered
      and s.error -> 'sent' is distinct from 'false'),
    array_agg(s.task_id) filter (where s.status = 'dead_letter' and s.recovered),
    array_agg(s.task_id) filter (where s.status = 'dead_letter' and not s.recovered and s.error -> 'sent' = 'false'),
    array(select distinct on (s.lane_id) s.task_id from settled s
      where s.status is null and s.wakes and s.deleted is not true)
  into task_ids, places, _told, _succeeded, _lost, _cancelled, _continued, _suspended, _parked, _awaited,
    _unbegun, _dead, _swept, _unsent, _waking
  from settled s;

  -- What the run itself remembers and waits for. Steps come first: children of a step that is over are left alone.
  if jsonb_path_exists(reports, '$[*].steps') then
    perform queues.insert_steps(reports, places, now);
  end if;
  if _succeeded is not null then
    delete from queues.wait w where w.task_id = any (_succeeded);
  end if;
  if _lost is not null or waited <> '{}' then
    perform queues.end_waits(_lost || waited);
  end if;
  if _continued is not null then
    perform queues.begin_generations((
      select jsonb_agg(jsonb_build_object('task_id', reports -> (c.n - 1) -> 'task_id',
        'payload', reports -> (c.n - 1) -> 'payload'))
      from unnest(_continued) c(n)), now);
  end if;
  if _suspended is not null then
    perform queues.write_waits(reports, _suspended, now);
  end if;

  -- Tasks that were given back and may not stay ready; then what waits for the ended ones.
  if _parked is not null then
    perform queues.park(_parked);
  end if;
  if _awaited is not null or waited <> '{}' then
    perform queues.bring_back(_awaited || waited);
  end if;
  if _unbegun is not null then
    perform queues.cancel_replaced(_unbegun);
  end if;
  if _cancelled is not null or waited <> '{}' then
    perform queues.settle_joins(_cancelled || waited, '{}', now);
  end if;
  if _told is not null or waited <> '{}' then
    perform queues.notify_waiters(_told || waited, looks_again);
  end if;
  if _dead is not null then
    perform queues.call_error_handlers(_dead, 'outcome_unknown', 'its attempts are used up, and none came to an end',
      false, true, now);
  end if;
  if _swept is not null then
    perform queues.call_error_handlers(_swept, 'outcome_unknown',
      'its worker was silent, and there are no attempts left', false, true, now);
  end if;
  if _unsent is not null then  -- the worker knows that the provider was not called
    perform queues.call_error_handlers(_unsent, null, null, false, false, now);
  end if;
  if _cancelled is not null or waited <> '{}' then
    perform queues.call_error_handlers(_cancelled || waited, 'cancelled', 'the run that waited for it has ended', true,
      true, now);
  end if;
  perform queues.wake_for(w.task_id) from unnest(_waking) w(task_id);
end
$$;

-- Ends tasks that all succeeded: the fast path of finish, for most batches. Returns the accepted results and their
-- positions.
-- Internal: called by finish. Locks: lease rows, without waiting, unless another transaction locks one in the very
-- moment between the check and the deletion.
create or replace function queues.settle_succeeded(
  worker_id text, results jsonb, now timestamptz, out accepted uuid[], out places integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _locked uuid[] := '{}';
  _awaited uuid[];
  _more record;
begin
  if jsonb_array_length(results) = 1 then
    -- Without the join of the statement below, which takes longer than all else. If it finds nothing, that one looks.
    with freed as (
      delete from queues.lease l
      where l.task_id = (results -> 0 ->> 'task_id')::uuid and l.token = (results -> 0 ->> 'token')::bigint
        and l.worker_id = settle_succeeded.worker_id and l.xmax = '0'
      returning l.task_id, l.token, l.claimed_at, l.attempt, l.awaited,
        nullif(results -> 0 -> 'result', 'null') as result,
        coalesce(l.started_at, greatest(l.claimed_at, least(coalesce(
          (results -> 0 ->> 'started_at')::timestamptz, l.claimed_at), settle_succeeded.now))) as started_at),
    ended as (
      insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id,
        result)
      select f.task_id, f.token, f.claimed_at, f.started_at, settle_succeeded.now, f.attempt, 'succeeded',
        settle_succeeded.worker_id,
        case when f.result is null or octet_length(queues.safe_text(f.result)) <= 4096 then f.result
          else queues.storable(f.result) end
      from freed f)
    select array[f.task_id], array[1], case when f.awaited then array[f.task_id] end
    into accepted, places, _awaited from freed f;
  end if;
  while accepted is null or cardinality(places) < jsonb_array_length(results) loop
    -- Locking a row before it is deleted would write as much log as deleting it. A row that no transaction has locked
    -- or changed since it was written has no xmax and is deleted at once; the others are locked first.
    with given as materialized (
      select r.n::integer as n, r.task_id, r.token, r.result, r.started_at
      from rows from (jsonb_to_recordset(results) as (task_id uuid, token bigint, result jsonb, started_at timestamptz))
        with ordinality r(task_id, token, result, started_at, n)
      order by r.task_id),
    freed as (
      delete from queues.lease l using given g
      where l.task_id = any (array(select task_id from given)) and l.task_id = g.task_id
        and l.token = g.token and l.worker_id = settle_succeeded.worker_id
        and (l.xmax = '0' or l.task_id = any (_locked))
      returning l.task_id, l.token, l.claimed_at, l.attempt, l.awaited, g.n, g.result,
        coalesce(l.started_at, greatest(l.claimed_at,
          least(coalesce(g.started_at, l.claimed_at), settle_succeeded.now))) as started_at),
    ended as (
      insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id,
        result)
      select f.task_id, f.token, f.claimed_at, f.started_at, settle_succeeded.now, f.attempt, 'succeeded',
        settle_succeeded.worker_id,
        case when f.result is null or octet_length(queues.safe_text(f.result)) <= 4096 then f.result
          else queues.storable(f.result) end
      from freed f)
    select array_agg(f.task_id order by f.n) as accepted, array_agg(f.n order by f.n) as places,
      array_agg(f.task_id) filter (where f.awaited) as awaited
    into _more from freed f;
    accepted := accepted || _more.accepted;
    places := places || _more.places;
    _awaited := _awaited || _more.awaited;
    exit when _locked <> '{}' or cardinality(places) = jsonb_array_length(results);
    _locked := array(
      select l.task_id from jsonb_to_recordset(results) as g(task_id uuid, token bigint)
      join queues.lease l on l.task_id = g.task_id and l.token = g.token
        and l.worker_id = settle_succeeded.worker_id
      order by l.task_id for update of l skip locked);
    exit when _locked = '{}';
  end loop;
  if _locked <> '{}' then
    select array_agg(a.task_id order by a.n), array_agg(a.n order by a.n) into accepted, places
    from unnest(accepted, places) a(task_id, n);
  end if;
  if _awaited is not null then
    perform queues.bring_back(_awaited);
  end if;
end
$$;

-- Returns the verdict for each element of a finish of which not all were accepted. The verdicts are accepted,
-- already_done, cancelled, lost and busy. Looks for the rows that an accepted call with the same token leaves.
create or replace function queues.verdicts(worker_id text, results jsonb, accepted integer[])
returns table (task_id uuid, verdict text)
language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _odd text;
begin
  select case
      when jsonb_typeof(r.element) <> 'object' then format('results[%s] must be an object', r.n - 1)
      when r.element ->> 'task_id' is null then format('results[%s].task_id must not be null', r.n - 1)
      when r.element ->> 'token' is null then format('results[%s].token must not be null', r.n - 1)
      else format('results[%s].status %s is not one of succeeded, failed, retry, snooze, suspend, continue, cancelled',
        r.n - 1, r.element -> 'status')
    end into _odd
  from jsonb_array_elements(results) with ordinality r(element, n)
  where jsonb_typeof(r.element) <> 'object' or r.element ->> 'task_id' is null or r.element ->> 'token' is null
     or coalesce(r.element ->> 'status', 'none') not in (
       'succeeded', 'failed', 'retry', 'snooze', 'suspend', 'continue', 'cancelled')
  order by r.n limit 1;
  if _odd is not null then
    raise exception using errcode = 'QF400', message = _odd;
  end if;

  return query
  -- "select true … limit 1" instead of exists, which the planner may implement by reading a whole table once.
  select r.task_id, case
      when r.n = any (accepted) then 'accepted'
      when (select true from queues.act a
        where a.task_id = r.task_id and a.token = r.token and a.act = 'cancelled' limit 1) then 'cancelled'
      when (select true from queues.outcome o where o.task_id = r.task_id and o.token = r.token limit 1)
        or (select true from queues.error e
          where e.task_id = r.task_id and e.token = r.token and not e.recovered and e.step is null limit 1)
        or (select true from queues.act a
          where a.task_id = r.task_id and a.token = r.token
            and a.act in ('snoozed', 'suspended', 'continued', 'retried')
          limit 1) then 'already_done'
      when (select true from queues.lease l
        where l.task_id = r.task_id and l.token = r.token and l.worker_id = verdicts.worker_id limit 1) then 'busy'
      else 'lost' end
  from rows from (jsonb_to_recordset(results) as (task_id uuid, token bigint)) with ordinality r(task_id, token, n)
  order by r.n;
end
$$;

-- Notifies clients that wait for these tasks, subscriptions to task events, and idle workers behind the same limit.
-- Sends nothing to absent receivers. The worker is one that looks for due tasks by itself, if any. Every finish calls
-- it, so all checks are one statement, and each is one lookup in an index that is mostly empty. Those who are not
-- notified look again by themselves. Returns whether anybody may wait for any task.
create or replace function queues.notify_waiters(task_ids uuid[], worker_id text default null)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _awaited boolean;
  _subscribed boolean;
  _limited boolean;
  _joined boolean;
begin
  select exists (select from queues.waiter),
    exists (select from queues.engine_subscription),
    exists (select from queues.task_limit) or exists (select from queues.lane l where l.concurrency_key > ''),
    exists (select from queues.wait w where w.on_task is not null)
  into _awaited, _subscribed, _limited, _joined;
  if _awaited and queues.may_notify() then
    perform pg_notify('holdfast_done', w.task_id::text)
    from queues.waiter w join queues.outcome o on o.task_id = w.task_id
    where w.task_id = any (task_ids);
    -- A row that an open call of watch holds is left for the sweep, without waiting.
    delete from queues.waiter w
    where w.task_id in (
      select held.task_id from queues.waiter held
      where held.task_id = any (task_ids) and exists (select from queues.outcome o where o.task_id = held.task_id)
      for update skip locked);
  end if;
  if _subscribed then
    perform queues.emit_task_events(task_ids);
  end if;
  if _limited then
    perform queues.wake_for_freed_limits(task_ids, worker_id);
  end if;
  if _joined then
    perform queues.mark_joins(task_ids);
  end if;
  return _awaited or _subscribed or _limited or _joined;
end
$$;

-- Records how runs ended that their worker killed because the task was cancelled, deleted, released or lost. Writes one
-- error for each, without settling the task. Returns recorded, already_done, or lost if the worker never held the task
-- with this token.
-- For holdfast_worker. Locks: none.
create or replace function queues.record_killed(worker_id text, killed jsonb)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('killed', killed);
  _now constant timestamptz := queues.clock();
begin
  return query
  with given as materialized (
    select k.n, k.task_id, k.token, queues.storable(k.error, 65536) as error,
      (select a.attempt from queues.attempt_by_token(k.task_id, k.token) a
        where a.worker_id = record_killed.worker_id) as attempt,
      (select true from queues.error e
        where e.task_id = k.task_id and e.token = k.token and e.kind = k.error ->> 'kind' and e.step is null
        limit 1) as known
    from rows from (jsonb_to_recordset(killed) as (task_id uuid, token bigint, error jsonb))
      with ordinality k(task_id, token, error, n)),
  kept as (
    -- No claimed_at: the rows that settled the task contain it.
    insert into queues.error (task_id, token, occurred_at, attempt, recovered, kind, message, worker_id, detail,
      generation, error_group)
    select g.task_id, g.token, _now, g.attempt, false, e.kind, e.message, record_killed.worker_id, g.error,
      queues.current_generation(g.task_id), queues.group_of_error(t.type, e.kind, g.error, e.message)
    from given g
    cross join lateral (
      select queues.error_kind(g.error, 'killed') as kind, queues.error_message(g.error, 'no message') as message
      offset 0) e
    cross join lateral (select t.type from queues.task t where t.task_id = g.task_id offset 0) t
    where g.attempt is not null and g.known is null)
  select g.task_id, case when g.attempt is null then 'lost' when g.known then 'already_done' else 'recorded' end
  from given g order by g.n;
end
$$;
