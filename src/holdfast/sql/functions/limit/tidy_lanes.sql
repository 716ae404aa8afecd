-- Takes idle lanes a step further on their way out, so that claims need not look at them, and says how many: found idle, and removed by a
-- later transaction. Called again until it returns 0, it removes what can be removed. A lane of a concurrency key is idle when it has no
-- task waiting or running five seconds after it was made, another one after a minute. For holdfast_worker. Locks: lanes, never waiting for one.
--
-- Who enqueues reads a lane without locking it, and its task is seen only when it commits. But it has its transaction id, and a lock on
-- the table, before it reads, and keeps both to its end. So a lane that is marked and committed is found by nobody who reads later, and
-- those who read before are known by their ids once the mark is seen: the highest of them is kept with the lane. When none up to it is
-- left, nobody can put a task there any more. Under stricter isolation a transaction may read a snapshot of long ago; there find_lane locks the lane's row.
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

  -- Not what this transaction has marked: nobody else sees that yet. Those who did not see a mark are among the users that are read next.
  _lanes := array(
    select l.lane_id from queues.lane l where l.leaving < 0 and l.leaving <> -_transaction_id limit max_lanes for update skip locked);
  select max(id) + 1, min(id) into _next, _oldest from unnest(queues.users_of_lanes()) id;
  update queues.lane l set leaving = coalesce(_next, 1) where l.lane_id = any (_lanes);

  _lanes := array(
    select l.lane_id from queues.lane l
    where l.leaving > 0 and (_oldest is null or l.leaving <= _oldest)
      and not exists (select from queues.ready r where r.lane_id = l.lane_id)
      and not exists (select from queues.lease e where e.lane_id = l.lane_id)
    limit max_lanes for update skip locked);
  -- A statement of its own, so that it sees what was committed by those who had one of them locked, or are gone from the users.
  delete from queues.lane l
  where l.lane_id = any (_lanes)
    and not exists (select from queues.ready r where r.lane_id = l.lane_id)
    and not exists (select from queues.lease e where e.lane_id = l.lane_id);
  get diagnostics _removed = row_count;

  update queues.lane l set leaving = -_transaction_id
  where l.lane_id = any (array(
    select idle.lane_id from queues.lane idle
    where idle.leaving is null
      and idle.made_at not between _now - case when idle.concurrency_key is null then interval '1 minute' else interval '5 seconds' end and _now
      and not exists (select from queues.ready r where r.lane_id = idle.lane_id)
      and not exists (select from queues.lease e where e.lane_id = idle.lane_id)
    limit max_lanes for update skip locked));
  get diagnostics _marked = row_count;

  delete from queues.lane_hoarder h where not queues.hoards_lanes(h.namespace, h.keyed);
  return _removed + _marked;
end
$$;

comment on function queues.tidy_lanes(integer) is
  'Takes idle lanes a step further on their way out, and says how many. Called again until it returns 0, it removes what can be removed.';
