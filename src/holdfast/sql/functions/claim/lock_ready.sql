-- Locks the first due rows in lanes of one priority, ordered by (run_at, task_id), and returns their ctids. The cursors
-- say where to start in each lane.
-- Internal: called by claim. Locks: ready rows, without waiting.
create or replace function queues.lock_ready(
  lanes bigint[], from_run_at timestamptz[], from_task_id uuid[], due timestamptz, max_tasks integer)
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _found tid[];
  _seen integer;
  _window integer := max_tasks;
begin
  if cardinality(lanes) = 1 then
    select array_agg(r.place) into _found
    from (
      select r.ctid as place from queues.ready r
      where r.lane_id = lanes[1] and r.run_at <= due and (r.run_at, r.task_id) > (from_run_at[1], from_task_id[1])
      order by r.run_at, r.task_id limit max_tasks
      for update skip locked) r;
    return _found;
  end if;

  -- Several lanes are merged before anything is locked: locking a full batch in each would hide rows from other workers
  -- that this one will not take. If other transactions hold rows of the window, it grows.
  loop
    with candidate as materialized (
      select c.place
      from unnest(lanes, from_run_at, from_task_id) lane(lane_id, run_at, task_id)
      cross join lateral (
        select r.ctid as place, r.run_at, r.task_id from queues.ready r
        where r.lane_id = lane.lane_id and r.run_at <= due and (r.run_at, r.task_id) > (lane.run_at, lane.task_id)
        order by r.run_at, r.task_id limit _window) c
      order by c.run_at, c.task_id limit _window),
    locked as materialized (
      select r.ctid as place, r.run_at, r.task_id from queues.ready r
      where r.ctid = any (array(select place from candidate))
      order by r.run_at, r.task_id limit max_tasks
      for update skip locked)
    select array_agg(l.place order by l.run_at, l.task_id), (select count(*) from candidate) into _found, _seen
    from locked l;
    exit when _seen < _window or cardinality(_found) >= max_tasks or _window > 100000;
    _window := _window * 4;
  end loop;
  return _found;
end
$$;

comment on function queues.lock_ready(bigint[], timestamptz[], uuid[], timestamptz, integer) is
  'Locks the first due rows in lanes of one priority, ordered by (run_at, task_id), and returns their ctids.';
