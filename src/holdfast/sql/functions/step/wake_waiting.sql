-- Makes suspended runs due whose wait is over: a signal has come that none of their steps has taken, or the awaited
-- tasks have ended. Looks at the given runs of queues.recheck, or at all of them, and returns how many got a signal.
-- A worker calls it after the commit of a suspension, and every sweep does: a look after the later of two commits sees
-- both.
-- For holdfast_worker. Locks: rows of queues.recheck, then ready rows, without waiting.
create or replace function queues.wake_waiting(task_ids uuid[] default null)
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
  _places tid[];
  _seen uuid[];
  _due uuid[];
  _woken uuid[];
begin
  select array_agg(c.place), array_agg(c.task_id) into _places, _seen
  from (
    select c.ctid as place, c.task_id from queues.recheck c
    where task_ids is null or c.task_id = any (task_ids) order by c.task_id limit 10000 for update skip locked) c;
  if _seen is null then
    return 0;
  end if;
  -- A separate statement, so that it sees what was committed before those rows were.
  _due := array(
    select r.task_id from (select distinct s.task_id from unnest(_seen) s(task_id)) seen
    cross join lateral (
      select r.task_id from queues.ready r
      where r.task_id = seen.task_id and r.run_at > _now and r.attempt = 0 offset 0) r
    where (
      select true from queues.wait w
      where w.task_id = r.task_id and (
        select true from queues.signal s
        where s.task_id = w.task_id and s.name = w.signal and (
          select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
        limit 1)
      limit 1));
  _woken := queues.wake_runs(_due, _now);
  -- Only rows that were seen: another one may have been committed since. A run whose ready row another transaction
  -- holds is looked at again when that has ended.
  delete from queues.recheck c
  where c.ctid = any (_places) and (c.task_id = any (_woken) or not c.task_id = any (_due));
  perform queues.settle_joins(_seen, _seen, _now);
  perform queues.cancel_unwanted(_now);
  return cardinality(_woken);
end
$$;

comment on function queues.wake_waiting(uuid[]) is 'Makes suspended runs due whose wait is over, and returns how many.';
