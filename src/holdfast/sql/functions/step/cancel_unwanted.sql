-- Cancels tasks of queues.unwanted and returns how many. Those that another transaction holds are left for the next
-- look. Children that they wait for, and tasks that come after them, become unwanted, too. For any number of sessions.
-- Internal: called by sweep, cancel and wake_waiting. Locks: rows of queues.unwanted, then ready rows, then leases,
-- without waiting.
create or replace function queues.cancel_unwanted(now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ids uuid[];
  _ready uuid[];
  _held uuid[];
  _ended uuid[];
  _count integer := 0;
begin
  for _round in 1..20 loop
    exit when not exists (select from queues.unwanted);
    _ids := array(select u.task_id from queues.unwanted u order by u.task_id limit 1000 for update skip locked);
    _ready := array(
      select r.task_id from queues.ready r where r.task_id = any (_ids) order by r.task_id for update skip locked);
    with gone as (
      delete from queues.ready r where r.task_id = any (_ready) returning r.task_id, r.attempt)
    insert into queues.outcome (task_id, finished_at, attempt, status, reason)
    select g.task_id, cancel_unwanted.now, g.attempt, 'cancelled', u.reason
    from gone g cross join lateral (select u.reason from queues.unwanted u where u.task_id = g.task_id offset 0) u;

    _held := array(
      select l.task_id from queues.lease l where l.task_id = any (_ids) order by l.task_id for update skip locked);
    with gone as (
      delete from queues.lease l where l.task_id = any (_held) returning l.*)
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, reason)
    select g.task_id, g.token, g.claimed_at, g.started_at, cancel_unwanted.now, g.attempt, 'cancelled',
      g.worker_id, u.reason
    from gone g cross join lateral (select u.reason from queues.unwanted u where u.task_id = g.task_id offset 0) u;

    _ended := _ready || _held;
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason)
    select o.task_id, 'cancelled', cancel_unwanted.now, o.token, o.attempt, o.worker_id, queues.actor(), o.reason
    from queues.outcome o where o.task_id = any (_ended);
    -- One that is in neither table now is moving between them, unless it has ended or was deleted.
    delete from queues.unwanted u
    where u.task_id = any (_ids) and (u.task_id = any (_ended)
      or (select true from queues.outcome o where o.task_id = u.task_id limit 1)
      or (select true from queues.deletion d where d.task_id = u.task_id limit 1)
      or (select true from queues.task t where t.task_id = u.task_id limit 1) is null);
    exit when _ended = '{}';
    _count := _count + cardinality(_ended);
    perform queues.bring_back(_ended);
    perform queues.end_waits(_ended);
    perform queues.settle_joins(_ended, '{}', cancel_unwanted.now);
    perform queues.notify_waiters(_ended);
    perform queues.call_error_handlers(_ended, 'cancelled', 'the run that waited for it has ended', true,
      true, cancel_unwanted.now);
  end loop;
  return _count;
end
$$;

comment on function queues.cancel_unwanted(timestamptz) is 'Cancels tasks of queues.unwanted and returns how many.';
