-- Moves the pointers of joins (advance_joins) and makes runs due whose join is over. Returns the runs to look at again
-- after the commit: their pointer moved, or their ready row was locked.
-- Internal: called by wake_chores, look_at_joins, wake_joined, cancel_chores, cancel and hold_back. Locks: rows of
-- queues.wait, then ready rows, without waiting.
create or replace function queues.settle_joins(ended uuid[], runs uuid[], now timestamptz)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _moved uuid[];
  _over uuid[];
  _woken uuid[];
  _again uuid[];
begin
  select a.moved, a.over into _moved, _over from queues.advance_joins(ended, runs, now) a;
  _again := _moved;
  if _over <> '{}' then
    _woken := queues.wake_runs(_over, now);
    delete from queues.wait w where w.task_id = any (_woken) and w.name = '' and w.policy in ('ended', 'succeeded');
    _again := _again || array(
      select r.task_id from queues.ready r
      where r.task_id = any (_over) and not r.task_id = any (_woken) and r.run_at > settle_joins.now and r.attempt = 0);
  end if;
  if _again <> '{}' then
    insert into queues.chore (kind, added_at, task_id)
    select distinct 'w'::"char", settle_joins.now, a.task_id from unnest(_again) a(task_id);
  end if;
  return _again;
end
$$;

comment on function queues.settle_joins(uuid[], uuid[], timestamptz) is
  'Moves the pointers of joins and makes runs due whose join is over; returns the runs to look at again.';
