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
  _awaited uuid[];
begin
  with given as materialized (
    select r.n::integer as n, r.task_id, r.token, r.result, r.started_at
    from rows from (jsonb_to_recordset(results) as (task_id uuid, token bigint, result jsonb, started_at timestamptz))
      with ordinality r(task_id, token, result, started_at, n)
    order by r.task_id),
  -- Locking a row before it is deleted would write as much log as deleting it. A row that no transaction has locked or
  -- changed since it was written has no xmax, so only the others are locked here.
  free as materialized (
    select g.*, l.xmax <> '0' as locked from given g
    cross join lateral (
      select l.xmax from queues.lease l
      where l.task_id = g.task_id and l.token = g.token and l.worker_id = settle_succeeded.worker_id offset 0) l
    where l.xmax = '0' or (select true from queues.lease l where l.task_id = g.task_id for update skip locked)),
  freed as (
    delete from queues.lease l using free g
    where l.task_id = any (array(select task_id from free)) and l.task_id = g.task_id
      and (l.xmax = '0' or g.locked)
    returning l.task_id, l.token, l.claimed_at, l.attempt, l.awaited, g.n, g.result,
      coalesce(l.started_at, greatest(l.claimed_at,
        least(coalesce(g.started_at, l.claimed_at), settle_succeeded.now))) as started_at),
  ended as (
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id, result)
    select f.task_id, f.token, f.claimed_at, f.started_at, settle_succeeded.now, f.attempt, 'succeeded',
      settle_succeeded.worker_id,
      case when f.result is not null then queues.storable(f.result) end
    from freed f)
  select array_agg(f.task_id order by f.n), array_agg(f.n order by f.n), array_agg(f.task_id) filter (where f.awaited)
  into accepted, places, _awaited from freed f;
  if _awaited is not null then
    perform queues.bring_back(_awaited);
  end if;
end
$$;

comment on function queues.settle_succeeded(text, jsonb, timestamptz) is
  'Ends tasks that all succeeded: the fast path of finish, for most batches.';
