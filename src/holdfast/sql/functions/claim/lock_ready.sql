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
  _first integer := 1;  -- the first lane with a due task
begin
  if cardinality(lanes) > 1 then
    _first := (
      -- Not exists, which the planner may implement by reading the whole table once. The lanes are tried in order.
      select l.n from (select generate_series(1, cardinality(lanes)) as n) l
      where (
        select true from queues.ready r
        where r.lane_id = lanes[l.n] and r.run_at <= due
          and (r.run_at, r.task_id) > (from_run_at[l.n], from_task_id[l.n])
        order by r.lane_id, r.run_at, r.task_id limit 1)
      limit 1);
    if _first is null then
      return _found;
    end if;
  end if;
  -- A lane that is alone in its priority needs no merge, and often fills the batch.
  if (priorities[_first - 1] = priorities[_first]) is not true
    and (priorities[_first + 1] = priorities[_first]) is not true
  then
    _found := array(
      select r.ctid from queues.ready r
      where r.lane_id = lanes[_first] and r.run_at <= due
        and (r.run_at, r.task_id) > (from_run_at[_first], from_task_id[_first])
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
