-- Locks due rows, as many as limits and concurrency keys allow. Returns the ctids of those to claim, of those to set
-- aside because their key runs as many tasks as it may, and of those that wait in a lane that types share although
-- their type has a limit. Reads the lanes in the order of a claim, in windows, until it has enough. Within a window,
-- tasks whose key has fewer running tasks come first. Charges nothing: the claim does that once, for the tasks that it
-- takes.
-- The lanes are given by descending priority, each with a cursor that says where to start.
-- Internal: called by claim. Locks: limits; ready rows; keys; leases of keys that run as many as they may. Waits for
-- none of them for more than some milliseconds.
create or replace function queues.lock_within_limits(
  lanes bigint[], priorities integer[], from_run_at timestamptz[], from_task_id uuid[], queues text[],
  type_prefixes text[], due timestamptz, max_tasks integer, out picked tid[], out blocked tid[], out misplaced tid[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- Limits of queues and types: how many more tasks may start under each, and which ones apply to each lane.
  _rooms integer[];
  _of_queue integer[];
  _of_type integer[];
  -- The same for concurrency keys, as they are met.
  _names text[] := '{}';
  _running integer[] := '{}';
  _key_rooms integer[] := '{}';
  _key_of_type integer[];
  _key_of_queue integer[];
  _turns integer[];
  -- Where a key may run several tasks, a claim reads further, to find other keys.
  _several constant boolean := exists (select from queues.task_limit t where t.per_key > 1);
  _window integer := case when _several then greatest(200, 4 * max_tasks) else max_tasks end;
  _plain constant boolean := not exists (
    select from queues.lane l where l.lane_id = any (lanes) and (l.type = '' or l.concurrency_key = ''));
  _met record;
  _n integer;
  _by_queue integer;
  _by_type integer;
  _full tid[];
  _full_by integer[];
begin
  picked := '{}';
  blocked := '{}';
  misplaced := '{}';
  select r.rooms, r.of_queue, r.of_type into _rooms, _of_queue, _of_type from queues.rooms_of_lanes(lanes, due) r;
  loop
    with candidate as materialized (
      select c.place
      from (
        select lane.* from unnest(lanes, priorities, from_run_at, from_task_id, _of_queue, _of_type)
          lane(lane_id, priority, run_at, task_id, of_queue, of_type)
        where coalesce(least(_rooms[lane.of_queue], _rooms[lane.of_type]), 1) > 0
        order by lane.priority desc offset 0) lane
      cross join lateral (
        select r.ctid as place, r.run_at, r.task_id from queues.ready r
        where r.lane_id = lane.lane_id and r.run_at <= due and (r.run_at, r.task_id) > (lane.run_at, lane.task_id)
        order by r.run_at, r.task_id
        -- Only at first: other transactions may hold these rows, and keys may block them.
        limit case when _several or _window > max_tasks then _window
          else least(_window, _rooms[lane.of_queue], _rooms[lane.of_type]) end) c
      order by lane.priority desc, c.run_at, c.task_id limit _window),
    locked as materialized (
      select r.ctid as place, r.lane_id, r.run_at, r.task_id from queues.ready r
      where r.ctid = any (array(select place from candidate))
      for update skip locked),
    lane as materialized (
      select u.n::integer as n, l.lane_id, l.type = '' as is_shared, (l.queue = any (queues)) is true as is_subscribed
      from unnest(lanes) with ordinality u(lane_id, n) join queues.lane l on l.lane_id = u.lane_id
      where l.lane_id = any (lanes)),
    task as materialized (
      select t.task_id, t.queue, t.type, queues.qualified_key(t.namespace, t.concurrency_key) as key
      from queues.task t
      where t.task_id = any (case when _plain then '{}' else array(select l.task_id from locked l) end))
    select array_agg(m.place) as places, array_agg(m.run_at) as run_ats, array_agg(m.task_id) as task_ids,
      array_agg(m.n) as lanes, array_agg(m.queue) as queues, array_agg(m.type) as types, array_agg(m.key) as keys,
      array_agg(m.is_foreign) as foreigns, array_agg(m.is_misplaced) as misplaced, count(m.key) > 0 as keyed,
      (select count(*) from candidate) as seen
    into _met
    from (
      select l.place, l.run_at, l.task_id, lane.n, t.queue, t.type, t.key,
        lane.is_shared and not lane.is_subscribed
          and not exists (select from unnest(type_prefixes) prefix where starts_with(t.type, prefix)) as is_foreign,
        -- A type for which a limit was set gets a lane of its own.
        lane.is_shared and exists (
          select from queues.task_limit k where k.subject = 'type' and k.name = t.type
            and (k.max_running is not null or k.rate is not null)) as is_misplaced
      from locked l join lane on lane.lane_id = l.lane_id left join task t on t.task_id = l.task_id
      order by priorities[lane.n] desc, l.run_at, l.task_id offset 0) m;
    exit when _met.seen = 0;
    if _met.keyed then
      select r.names, r.running, r.rooms, r.of_type, r.of_queue, r.turns
      into _names, _running, _key_rooms, _key_of_type, _key_of_queue, _turns
      from queues.rooms_of_keys(_names, _running, _key_rooms, _met.queues, _met.types, _met.keys, _met.lanes,
        priorities) r;
    end if;

    _full := '{}';
    _full_by := '{}';
    for _turn in 1..coalesce(cardinality(_met.places), 0) loop
      _n := case when _met.keyed then _turns[_turn] else _turn end;
      _by_queue := _of_queue[_met.lanes[_n]];
      _by_type := _of_type[_met.lanes[_n]];
      continue when _met.foreigns[_n] or _rooms[_by_queue] <= 0 or _rooms[_by_type] <= 0;
      if _met.misplaced[_n] then
        misplaced := misplaced || _met.places[_n];
        continue;
      elsif _met.keys[_n] is not null then
        -- Neither is known if another claim counts this key.
        continue when _key_of_type[_n] is null and _key_of_queue[_n] is null;
        if _key_rooms[_key_of_type[_n]] <= 0 then
          _full := _full || _met.places[_n];
          _full_by := _full_by || _key_of_type[_n];
          continue;
        elsif _key_rooms[_key_of_queue[_n]] <= 0 then
          _full := _full || _met.places[_n];
          _full_by := _full_by || _key_of_queue[_n];
          continue;
        end if;
        if _key_of_type[_n] is not null then
          _key_rooms[_key_of_type[_n]] := _key_rooms[_key_of_type[_n]] - 1;
        end if;
        if _key_of_queue[_n] is not null then
          _key_rooms[_key_of_queue[_n]] := _key_rooms[_key_of_queue[_n]] - 1;
        end if;
      end if;
      if _by_queue is not null then
        _rooms[_by_queue] := _rooms[_by_queue] - 1;
      end if;
      if _by_type is not null then
        _rooms[_by_type] := _rooms[_by_type] - 1;
      end if;
      picked := picked || _met.places[_n];
      exit when cardinality(picked) = max_tasks;
    end loop;
    if _full <> '{}' then
      blocked := blocked || queues.await_keys(_full, _full_by, _names, _running);
    end if;
    exit when cardinality(picked) = max_tasks or cardinality(blocked) > 10000 or _window > 100000;
    for _read in 1..coalesce(cardinality(_met.places), 0) loop
      from_run_at[_met.lanes[_read]] := _met.run_ats[_read];
      from_task_id[_met.lanes[_read]] := _met.task_ids[_read];
    end loop;
    _window := _window * 4;
  end loop;
end
$$;

comment on function queues.lock_within_limits(
  bigint[], integer[], timestamptz[], uuid[], text[], text[], timestamptz, integer) is
  'Locks due rows, as many as limits and concurrency keys allow.';
