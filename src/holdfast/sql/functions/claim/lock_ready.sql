-- Locks the first due rows of lanes without limits, in the order priority desc, run_at, task_id, and returns their
-- ctids.
-- The lanes are given by descending priority, each with a cursor that says where to start.
-- Internal: called by claim. Locks: ready rows, without waiting.
create or replace function queues.lock_ready(
  lanes bigint[], priorities integer[], from_run_at timestamptz[], from_task_id uuid[], due timestamptz,
  max_tasks integer)
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _found tid[] := '{}';
  _more tid[];
  _seen integer;
  _window integer;
  _read integer;
  _first integer := 1;  -- the first lane with a due task, and where that is
  _run_at timestamptz := from_run_at[1];
  _task_id uuid := from_task_id[1];
  _alone boolean := true;  -- whether no other lane of its priority has one
begin
  if cardinality(lanes) > 1 then
    -- Lateral, because the planner may implement exists by reading the whole table once. The lanes are tried in order.
    select l.n, d.run_at, d.task_id into _first, _run_at, _task_id
    from (select generate_series(1, cardinality(lanes)) as n) l
    cross join lateral (
      select r.run_at, r.task_id from queues.ready r
      where r.lane_id = lanes[l.n] and r.run_at <= due
        and (r.run_at, r.task_id) > (from_run_at[l.n], from_task_id[l.n])
      order by r.lane_id, r.run_at, r.task_id limit 1) d
    limit 1;
    if _first is null then
      return _found;
    end if;
    if priorities[_first + 1] = priorities[_first] then
      -- Types whose tasks are all suspended or delayed are such lanes.
      _alone := (
        select true from (select generate_series(_first + 1, cardinality(lanes)) as n) l
        where priorities[l.n] = priorities[_first] and (
          select true from queues.ready r
          where r.lane_id = lanes[l.n] and r.run_at <= due
            and (r.run_at, r.task_id) > (from_run_at[l.n], from_task_id[l.n])
          order by r.lane_id, r.run_at, r.task_id limit 1)
        limit 1) is null;
    end if;
  end if;
  -- Then no merge is needed, and that lane often fills the batch.
  if _alone then
    _found := array(
      select r.ctid from queues.ready r
      where r.lane_id = lanes[_first] and r.run_at <= due
        and (r.run_at, r.task_id) >= (_run_at, _task_id)
        and not (r.run_at = from_run_at[_first] and r.task_id = from_task_id[_first])
      order by r.run_at, r.task_id limit max_tasks
      for update skip locked);
    _first := _first + 1;
    if cardinality(_found) >= max_tasks or _first > cardinality(lanes) then
      return _found;
    end if;
    max_tasks := max_tasks - cardinality(_found);
  end if;
  lanes := lanes[_first:];
  priorities := priorities[_first:];
  from_run_at := from_run_at[_first:];
  from_task_id := from_task_id[_first:];

  -- Several lanes are merged before anything is locked: locking a full batch in each would hide rows from other workers
  -- that this one will not take. If other transactions hold rows of the window, it grows. The lanes are sorted by
  -- priority, so PostgreSQL sorts the rows of one priority at a time and stops reading lanes when the window is full.
  _window := max_tasks;
  -- The first lanes are often enough. Lanes of one priority are read together.
  _read := least(8, cardinality(lanes));
  while priorities[_read + 1] = priorities[_read] loop
    _read := _read + 1;
  end loop;
  loop
    with candidate as materialized (
      select c.place
      from (
        select *
        from unnest(lanes[:_read], priorities[:_read], from_run_at[:_read], from_task_id[:_read])
          lane(lane_id, priority, run_at, task_id)
        order by priority desc offset 0) lane
      cross join lateral (
        select r.ctid as place, r.run_at, r.task_id from queues.ready r
        where r.lane_id = lane.lane_id and r.run_at <= due and (r.run_at, r.task_id) > (lane.run_at, lane.task_id)
        order by r.run_at, r.task_id limit _window) c
      order by lane.priority desc, c.run_at, c.task_id limit _window),
    locked as materialized (
      select r.ctid as place
      from queues.ready r
      join unnest(lanes[:_read], priorities[:_read]) lane(lane_id, priority) on lane.lane_id = r.lane_id
      where r.ctid = any (array(select place from candidate))
      order by lane.priority desc, r.run_at, r.task_id limit max_tasks
      for update of r skip locked)
    select array(select place from locked), (select count(*) from candidate) into _more, _seen;
    exit when cardinality(_more) >= max_tasks or _window > 100000;
    if _read < cardinality(lanes) then
      _read := cardinality(lanes);
    elsif _seen < _window then
      exit;
    else
      _window := _window * 4;
    end if;
  end loop;
  return _found || _more;
end
$$;

comment on function queues.lock_ready(bigint[], integer[], timestamptz[], uuid[], timestamptz, integer) is
  'Locks the first due rows of lanes without limits, in the order priority desc, run_at, task_id.';
