-- Marks idle lanes, removes those marked by earlier transactions, and returns how many it changed. Claims then need
-- not read them. Call it until it returns 0 to remove everything that can be removed. The lane of a concurrency key is
-- idle if it has no waiting task five seconds after it was created, other lanes if they have no waiting or running
-- task after a minute.
-- For holdfast_worker. Locks: lanes, without waiting.
--
-- An enqueue reads a lane without locking it, and its task becomes visible only when it commits. But before it reads
-- the lane, it has a transaction id and a lock on the table, and keeps both until it ends. So a transaction that
-- starts reading after the mark was committed does not find the lane, and those that read before are known by their
-- ids once the mark is visible; the highest of these ids is stored with the lane. When none of them is left, no task
-- can be added to the lane. Under stricter isolation, a transaction may use an old snapshot; then find_lane locks the
-- lane's row.
create or replace function queues.tidy_lanes(max_lanes integer default 10000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _transaction_id constant bigint := pg_current_xact_id()::text::bigint;
  _next bigint;
  _oldest bigint;
  _lanes bigint[];
  _removed integer;
  _marked integer;
begin
  if max_lanes is null or max_lanes not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_lanes must be between 1 and 10000';
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF412', message = 'lanes can be tidied only under read committed';
  end if;

  -- Excludes lanes that this transaction has marked: other transactions cannot see the mark yet. Those that did not see
  -- a mark are among the users that are read next.
  _lanes := array(
    select l.lane_id from queues.lane l where l.leaving < 0 and l.leaving <> -_transaction_id limit max_lanes
    for update skip locked);
  select max(id) + 1, min(id) into _next, _oldest from unnest(queues.users_of_lanes()) id;
  update queues.lane l set leaving = coalesce(_next, 1) where l.lane_id = any (_lanes);

  _lanes := array(
    select l.lane_id from queues.lane l
    where l.leaving > 0 and (_oldest is null or l.leaving <= _oldest)
      and not exists (select from queues.ready r where r.lane_id = l.lane_id)
      and not exists (select from queues.lease e where e.lane_id = l.lane_id)
    limit max_lanes for update skip locked);
  -- A separate statement, so that it sees what was committed by transactions that had locked a lane or have ended.
  delete from queues.lane l
  where l.lane_id = any (_lanes)
    and not exists (select from queues.ready r where r.lane_id = l.lane_id)
    and not exists (select from queues.lease e where e.lane_id = l.lane_id);
  get diagnostics _removed = row_count;

  update queues.lane l set leaving = -_transaction_id
  where l.lane_id = any (array(
    select idle.lane_id from queues.lane idle
    where idle.leaving is null
      and idle.made_at not between
        _now - case when idle.concurrency_key > '' then interval '5 seconds' else interval '1 minute' end and _now
      and not exists (select from queues.ready r where r.lane_id = idle.lane_id)
      and not exists (select from queues.lease e where e.lane_id = idle.lane_id)
    limit max_lanes for update skip locked));
  get diagnostics _marked = row_count;

  -- The end of a task does not wait for one that another transaction holds and then does not take after all.
  perform queues.bring_back(array(
    select first.task_id from queues.lane l
    cross join lateral (
      select r.task_id from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where l.concurrency_key > '' and not exists (
      select from queues.lease e where e.concurrency_key = queues.qualified_key(l.namespace, l.concurrency_key))
    limit max_lanes));
  -- Claims count tasks whose claim did not know a limit only within ten seconds after it was set.
  perform queues.count_running(t.subject, t.name) from queues.task_limit t
  where t.max_running is not null and t.set_at > _now - interval '1 hour';
  delete from queues.lane_hoarder h where not queues.hoards_lanes(h.namespace);
  return _removed + _marked;
end
$$;

comment on function queues.tidy_lanes(integer) is
  'Marks idle lanes, removes those marked by earlier transactions, and returns how many it changed.';
