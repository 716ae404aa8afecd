-- Makes suspended runs due now and returns those that it moved. Skips rows that another transaction holds. A run
-- that waits for its next attempt after a failure is not suspended, and keeps its delay.
-- Internal. Locks: ready rows, without waiting.
create or replace function queues.wake_runs(task_ids uuid[], now timestamptz)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _moved uuid[];
begin
  with locked as materialized (
    select r.task_id from queues.ready r
    where r.task_id = any (task_ids) and r.run_at > wake_runs.now and r.attempt = 0
    order by r.task_id for update skip locked),
  gone as (
    delete from queues.ready r where r.task_id = any (array(select l.task_id from locked l)) returning r.task_id,
      r.lane_id),
  moved as (
    -- New rows instead of an update: claims rely on ready rows never moving.
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    -- A task that came after others may have a time of its own.
    select g.task_id, greatest(wake_runs.now, (
      select t.run_at from queues.task t
      where t.task_id = g.task_id
        and (select true from queues.wait w where w.task_id = g.task_id and w.name = ''))), g.lane_id, 0
    from gone g
    returning task_id)
  select coalesce(array_agg(m.task_id), '{}') into _moved from moved m;
  perform queues.wake_for(m.task_id) from unnest(_moved) m(task_id);
  return _moved;
end
$$;

comment on function queues.wake_runs(uuid[], timestamptz) is
  'Makes suspended runs due now and returns those that it moved.';
