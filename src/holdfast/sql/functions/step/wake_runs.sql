-- Makes suspended runs due now and returns those that it moved. Skips rows that another transaction holds. A run
-- that waits for its next attempt after a failure is not suspended, and keeps its delay.
-- Internal: called by signal, settle_joins and wake_chores, which leave or keep a chore for a run that is skipped.
-- Locks: ready rows, without waiting.
create or replace function queues.wake_runs(task_ids uuid[], now timestamptz)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _moved uuid[];
  _places tid[];
  _run_ats timestamptz[];
begin
  with locked as materialized (
    select r.task_id, r.ctid as place from queues.ready r
    where r.task_id = any (task_ids) and r.run_at > wake_runs.now and r.attempt = 0
    order by r.task_id for update skip locked)
  -- A task that came after others may have a time of its own.
  select coalesce(array_agg(l.task_id), '{}'), array_agg(l.place), array_agg(greatest(wake_runs.now, (
    select w.until from queues.wait w where w.task_id = l.task_id and w.name = '')))
  into _moved, _places, _run_ats from locked l;
  if _moved <> '{}' then
    perform queues.move_ready(_places, _run_ats, null);
    perform queues.wake_for(m.task_id) from unnest(_moved) m(task_id);
  end if;
  return _moved;
end
$$;

comment on function queues.wake_runs(uuid[], timestamptz) is
  'Makes suspended runs due now and returns those that it moved.';
