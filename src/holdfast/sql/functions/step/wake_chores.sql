-- Makes suspended runs due whose wait is over: a signal has come that none of their steps has taken, or the awaited
-- tasks have ended. Looks at the runs of these chores and removes the chores. One whose run another transaction holds
-- stays. Returns how many it removed, and how many runs got a signal.
-- Internal: called by wake_waiting and do_chores, which have locked the chores. Locks: rows of queues.wait, then ready
-- rows, without waiting.
create or replace function queues.wake_chores(chores bigint[], now timestamptz, out done integer, out woken integer)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- A separate statement, so that it sees what was committed before those rows were.
  _seen constant uuid[] := array(
    select distinct c.task_id from queues.chore c where c.kind = 'w' and c.chore_id = any (chores));
  _due uuid[];
  _woken uuid[];
begin
  _due := array(
    select r.task_id from unnest(_seen) seen(task_id)
    cross join lateral (
      select r.task_id from queues.ready r
      where r.task_id = seen.task_id and r.run_at > wake_chores.now and r.attempt = 0 offset 0) r
    where (
      select true from queues.wait w
      where w.task_id = r.task_id and (
        select true from queues.signal s
        where s.task_id = w.task_id and s.name = w.signal and (
          select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
        limit 1)
      limit 1));
  _woken := queues.wake_runs(_due, now);
  woken := cardinality(_woken);
  -- Only rows that were seen: another one may have been committed since.
  delete from queues.chore c
  where c.kind = 'w' and c.chore_id = any (chores)
    and (c.task_id = any (_woken) or not c.task_id = any (_due));
  get diagnostics done = row_count;
  perform queues.settle_joins(_seen, _seen, now);
end
$$;

comment on function queues.wake_chores(bigint[], timestamptz) is
  'Makes the runs of these chores due whose wait is over, and removes the chores.';
