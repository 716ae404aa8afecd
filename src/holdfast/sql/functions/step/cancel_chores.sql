-- Does these chores of the kind cancel, in the name of the engine, and returns how many it removed. A chore whose task
-- another transaction holds is left. So is one whose cause another transaction is about to retry; if the cause has not
-- ended any more, or has succeeded meanwhile, the chore is dropped. Children of the cancelled tasks, and tasks after
-- them, are the next chores.
-- Internal: called by do_chores, which has locked the chores. Locks: ready rows, then leases,
-- then the outcomes of the causes, shared: a retry of a cause that waits for them sees what was cancelled. All of them
-- without waiting.
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

comment on function queues.cancel_chores(bigint[], timestamptz) is
  'Does these chores of the kind cancel, in the name of the engine, and returns how many it removed.';
