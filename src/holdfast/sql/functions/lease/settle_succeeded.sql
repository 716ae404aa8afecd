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
  loop
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
        case when octet_length(queues.safe_text(f.result)) <= 4096 then f.result else queues.storable(f.result) end
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

comment on function queues.settle_succeeded(text, jsonb, timestamptz) is
  'Ends tasks that all succeeded: the fast path of finish, for most batches.';
