-- Claims: which worker gets which tasks. A claim turns ready rows into leases, counts the attempt, and draws one token
-- for all of them.
-- Invariant: a task has at most one lease, and every later claim of it has a higher token, also after a crash of the
-- server. A claim starts no more tasks under a limit or with a concurrency key than are allowed. It takes tasks in the
-- order priority, run_at, task_id, but among concurrency keys those with fewer running tasks first.
-- Lock order: after a crash, the row of queues.crash_detector; for large claims, the lanes; the limits of the lanes;
-- ready rows; concurrency keys; leases of keys that run as many tasks as they may. Except for the first two, no lock is
-- waited for longer than some milliseconds; for lanes, a second at most.
-- At the same time: claims skip rows that others hold and take the next ones, so no two return the same task. Large
-- claims of a lane take turns, and each goes on where the last one ended. Ready rows are never updated, so the ctid of
-- a row stays valid. Claims under the same limit count one after the other: one that does not get the lock leaves these
-- tasks to the next claim. A task that becomes ready behind the place where a claim begins is found by the next claim
-- that looks from the beginning, a second later at most.
-- Explained in docs/design/claims.md.

-- Leases the first due tasks of the subscribed queues and types, in the order priority desc, run_at, task_id. A worker
-- subscribes to queues, type prefixes, or both; with neither, to the queue "default". Counts the attempt. Limited
-- tasks are claimed as far as their limits allow; among concurrency keys, those with fewer running tasks come first.
-- A session that has turned synchronous_commit off may lose a claim in a crash: the tasks are ready again, and may run
-- a second time. The commit waits for the disk if a task allows one attempt only, or if a limit or key counts it.
-- For holdfast_worker. Locks: ready rows, without waiting; limits, keys and leases of their tasks, without waiting for
-- more than some milliseconds; after a crash of the server first the row of queues.crash_detector.
--
-- "after" is the claim cursor: {lane_id: {"run_at", "task_id"}}, the last row that the same worker got from each lane.
-- With it, a claim skips rows that were deleted but that an old snapshot keeps in the index. A claim does not see
-- tasks that were inserted behind the cursor, so a worker drops the cursor after a second, and a claim that finds too
-- few tasks looks again without it.
create or replace function queues.claim(
  worker_id text,
  max_tasks integer default 1,
  queues text[] default null,
  type_prefixes text[] default null,
  lease interval default null,
  after jsonb default null)
returns table (
  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,
  lease_until timestamptz, timeout interval, metadata jsonb, run_at timestamptz, lane_id bigint,
  queue text, ends_at timestamptz)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_nestloop = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_claim(worker_id, max_tasks, queues, type_prefixes, lease, after);
  _now timestamptz := queues.clock();
  _queues constant text[] := coalesce(queues, case when type_prefixes is null then array['default'] end);
  _types constant text[] := case when type_prefixes is not null then queues.types_in_use(type_prefixes) end;
  _least constant uuid := '00000000-0000-0000-0000-000000000000';
  _lanes record;
  _in_turn boolean := false;
  _unlocked boolean := false;
  _allowed record;
  _picked tid[];
  _namespace text;
  _key text;
  _run_at timestamptz;
  _awaited boolean;
  _generation integer;
begin
  -- One statement for what every claim asks. Where nothing is limited or paused, it is all: looking up limits for each
  -- lane takes a third of the time of an ordinary claim.
  select exists (select from queues.crash_detector) as no_crash, exists (select from queues.task_limit) as limits,
    exists (select from queues.paused_queue) as paused,
    array_agg(l.lane_id) as ids, array_agg(l.priority) as priorities,
    array_agg(case when claim.after is null or l.mixed then '-infinity'
      else coalesce((claim.after -> l.lane_id::text ->> 'run_at')::timestamptz, '-infinity') end) as run_ats,
    array_agg(case when claim.after is null or l.mixed then _least
      else coalesce((claim.after -> l.lane_id::text ->> 'task_id')::uuid, _least) end) as task_ids,
    bool_or(l.mixed) as mixed, null::bigint[] as limited, null::bigint[] as rated
  into _lanes
  from (
    select l.lane_id, l.priority, l.concurrency_key is not null as mixed from queues.lane l
    where l.queue = any (_queues) and coalesce(l.concurrency_key, '') = '' order by l.priority desc offset 0) l;
  if not _lanes.no_crash then
    perform queues.skip_lost_tokens();
  end if;
  if _lanes.limits or _lanes.paused or _types is not null then
    -- Cursors do not apply to limited lanes, in which a claim may leave tasks behind.
    select array_agg(l.lane_id) as ids, array_agg(l.priority) as priorities,
      array_agg(coalesce(case when not l.mixed then (claim.after -> l.lane_id::text ->> 'run_at')::timestamptz end,
        '-infinity')) as run_ats,
      array_agg(coalesce(case when not l.mixed then (claim.after -> l.lane_id::text ->> 'task_id')::uuid end,
        _least)) as task_ids,
      bool_or(l.mixed) as mixed, array_agg(l.lane_id) filter (where l.max_running) as limited,
      array_agg(l.lane_id) filter (where l.rate) as rated
    into _lanes
    from (
      select l.lane_id, l.priority, limits.max_running, limits.rate,
        coalesce(l.concurrency_key = '' or limits.max_running or limits.rate
          or l.type = '' and (_lanes.limits or (l.queue = any (_queues)) is not true), false) as mixed
      from queues.lanes_of(_queues, _types) l
      left join lateral (
        select bool_or(t.max_running is not null) as max_running, bool_or(t.rate is not null) as rate
        from queues.task_limit t
        where _lanes.limits and (t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type))
        limits on true
      where not exists (select from queues.paused_queue p where p.queue = l.queue)
      order by l.priority desc offset 0) l;
  end if;
  if _lanes.ids is null then
    return;
  elsif _lanes.mixed then
    _allowed := queues.lock_within_limits(_lanes.ids, _lanes.priorities, _lanes.run_ats, _lanes.task_ids, _queues,
      type_prefixes, _now, max_tasks);
    _picked := _allowed.picked;
  elsif max_tasks >= 50 and cardinality(_lanes.ids) <= 64 and queues.hold_lanes(_lanes.ids) then
    select p.picked, p.unlocked, true into _picked, _unlocked, _in_turn
    from queues.pick_in_turn(_lanes.ids, _lanes.priorities, max_tasks, _now) p;
    _now := queues.clock();  -- it may have waited
  else
    _picked := queues.lock_ready(_lanes.ids, _lanes.priorities, _lanes.run_ats, _lanes.task_ids, _now, max_tasks);
  end if;

  -- Nothing is charged or moved before this point, so that looking again costs nothing.
  if cardinality(_picked) < max_tasks and after is not null and not _in_turn then
    return query select c.* from queues.claim(worker_id, max_tasks, queues, type_prefixes, lease) c;
    return;
  end if;
  if _lanes.mixed then
    if _allowed.misplaced <> '{}' then
      perform queues.set_aside(_allowed.misplaced, false);
    end if;
    if _allowed.blocked <> '{}' then
      perform queues.set_aside(_allowed.blocked, true);
    end if;
  end if;
  if _picked = '{}' then
    return;
  end if;

  token := nextval('queues.token');
  if _lanes.rated is not null then
    perform queues.spend_rate(_picked, _lanes.rated, _now);
  end if;
  if cardinality(_picked) = 1 then
    -- Three small statements start faster than the large one below, which does the same.
    delete from queues.ready r where r.ctid = _picked[1]
    returning r.task_id, r.run_at, r.lane_id, r.attempt + 1 into task_id, run_at, lane_id, attempt;
    select t.type, t.queue, t.executor, t.payload, t.max_attempts, t.timeout, t.metadata, t.namespace,
      t.concurrency_key, coalesce(t.lease, claim.lease, interval '30 seconds'), nullif(claim.run_at, t.run_at),
      case when t.deadline is not null then queues.end_of_life(t.task_id, t.created_at, t.deadline) end, t.generation
    into type, queue, executor, payload, max_attempts, timeout, metadata, _namespace, _key, lease, _run_at,
      ends_at, _generation
    from queues.task t where t.task_id = claim.task_id;
    if not found then
      return;
    end if;
    if max_attempts = 1 or _key is not null or lane_id = any (_lanes.limited) or lane_id = any (_lanes.rated) then
      perform queues.commit_to_disk();
    end if;
    lease_until := _now + lease;
    if _key is not null then
      _awaited := exists (select from queues.lane l
        where l.concurrency_key = _key and l.namespace = _namespace and l.concurrency_key > '');
    end if;
    insert into queues.lease (task_id, token, claimed_at, lease_until, run_at, lane_id, attempt, lease_ms, limited,
      awaited, worker_id, concurrency_key, generation)
    values (task_id, token, _now, lease_until, _run_at, lane_id, attempt, (extract(epoch from lease) * 1000)::integer,
      lane_id = any (_lanes.limited), _awaited, worker_id,
      queues.qualified_key(_namespace, _key), _generation);
    return next;
    return;
  end if;

  return query
  with gone as (
    -- A row that was not locked when it was picked may belong to somebody else by now.
    delete from queues.ready r where r.ctid = any (_picked) and (r.xmax = '0' or not _unlocked)
    returning r.task_id, r.run_at, r.lane_id, r.attempt + 1 as attempt),
  -- One scan fetches all tasks by their ids and visits each index page once. They are sorted here and read below in
  -- that order. The sort columns come first, because reaching a column behind variable-width columns means walking over
  -- those.
  work as materialized (
    select t.priority, g.run_at, g.task_id, g.lane_id, g.attempt, nullif(g.run_at, t.run_at) as other_run_at,
      t.max_attempts, t.timeout, coalesce(t.lease, claim.lease, interval '30 seconds') as lease, t.type, t.queue,
      t.executor, t.metadata, t.payload, t.namespace, t.concurrency_key, t.generation,
      case when t.deadline is not null then queues.end_of_life(t.task_id, t.created_at, t.deadline) end as ends_at
    from gone g join queues.task t on t.task_id = g.task_id
    where t.task_id = any (array(select task_id from gone))
    order by t.priority desc, g.run_at, g.task_id),
  held as (
    insert into queues.lease (task_id, token, claimed_at, lease_until, run_at, lane_id, attempt, lease_ms, limited,
      awaited, worker_id, concurrency_key, generation)
    select w.task_id, claim.token, _now, _now + w.lease, w.other_run_at, w.lane_id, w.attempt,
      (extract(epoch from w.lease) * 1000)::integer, w.lane_id = any (_lanes.limited),
      -- Not exists, which the planner may implement by reading the whole table once.
      case when w.concurrency_key is not null then (
        select true from queues.lane l
        where l.concurrency_key = w.concurrency_key and l.namespace = w.namespace and l.concurrency_key > ''
        limit 1) end,
      claim.worker_id, queues.qualified_key(w.namespace, w.concurrency_key), w.generation
    from work w
    -- Once, whatever the number of tasks. Always true.
    where coalesce((
      select queues.commit_to_disk() from work d
      where d.max_attempts = 1 or d.concurrency_key is not null
        or _lanes.limited is not null and d.lane_id = any (_lanes.limited)
        or _lanes.rated is not null and d.lane_id = any (_lanes.rated)
      limit 1), '') is not null)
  select w.task_id, claim.token, w.type, w.executor, w.payload, w.attempt, w.max_attempts::integer, _now + w.lease,
    w.timeout, w.metadata, w.run_at, w.lane_id, w.queue, w.ends_at
  from work w;
end
$$;

-- Raises QF400 if the arguments of a claim are invalid. Returns true, so that a declaration can call it without a
-- query.
create or replace function queues.check_claim(
  worker_id text, max_tasks integer, queues text[], type_prefixes text[], lease interval, after jsonb)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  _problem := case
    when worker_id is null or worker_id = '' or octet_length(worker_id) > 200
      then 'worker_id must be between 1 and 200 bytes long'
    when max_tasks is null or max_tasks not between 1 and 10000 then 'max_tasks must be between 1 and 10000'
    when array_position(queues, null) is not null then 'queues must not contain nulls'
    when array_position(type_prefixes, null) is not null then 'type_prefixes must not contain nulls'
    when lease < interval '1 second' or lease > interval '1 day' then 'lease must be between 1 second and 1 day'
    when jsonb_typeof(after) <> 'object' then 'after must be an object'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem;
  end if;
  return true;
end
$$;

-- Skips tokens that a crash may have made the server forget. Skips more than are ever issued between two flushes of the
-- log. The commit waits for the disk, because a second crash must not undo the skip.
-- Internal: called by claim when queues.crash_detector has no row. Locks: that row; waits for a claim that does
-- the same.
create or replace function queues.skip_lost_tokens()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  -- A claim that waited here finds the row, and the skipped tokens are on disk.
  insert into queues.crash_detector default values on conflict do nothing;
  if found then
    perform queues.commit_to_disk();
    perform setval('queues.token', nextval('queues.token') + 1000000000);
  end if;
end
$$;

-- Locks due rows, as many as limits and concurrency keys allow. Returns the ctids of those to claim, of those to set
-- aside because their key runs as many tasks as it may, and of those that wait in a lane that types share although
-- their type has a limit. If the same limits apply to all lanes, and no keys, it counts their room once and locks as
-- many of the first tasks. Else it reads the lanes in the order of a claim, in windows, until it has enough. Within a
-- window, tasks whose key has fewer running tasks come first. Charges nothing: the claim does that once, for the tasks
-- that it takes.
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
  _limits constant record := queues.rooms_of_lanes(lanes, due);
  _rooms integer[] := _limits.rooms;
  _of_queue constant integer[] := _limits.of_queue;
  _of_type constant integer[] := _limits.of_type;
  -- The same for concurrency keys, as they are met.
  _names text[] := '{}';
  _running integer[] := '{}';
  _key_rooms integer[] := '{}';
  _key_of_type integer[];
  _key_of_queue integer[];
  _turns integer[];
  -- Where a key may run several tasks, a claim reads further, to find other keys.
  _several boolean;
  _window integer;
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
  if _plain and cardinality(array_positions(_of_queue, _of_queue[1])) = cardinality(lanes)
    and cardinality(array_positions(_of_type, _of_type[1])) = cardinality(lanes)
  then
    max_tasks := least(max_tasks, _rooms[_of_queue[1]], _rooms[_of_type[1]]);
    if max_tasks > 0 then
      picked := queues.lock_ready(lanes, priorities, from_run_at, from_task_id, due, max_tasks);
    end if;
    return;
  end if;
  _several := exists (select from queues.task_limit t where t.per_key > 1);
  _window := case when _several then greatest(200, 4 * max_tasks) else max_tasks end;
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

-- Locks lanes until the transaction ends, so that large claims read them one after another, and returns whether it got
-- them. Large claims that read a lane at the same time step over each other's rows, each of which costs a call of the
-- lock manager: with 64 workers, that is most of what a task costs. Small claims do not wait: with them, waiting would
-- cost more than it saves.
-- A claim waits for a second while claims from these lanes go on. If none has ended in the last two seconds, one may be
-- in a transaction that stays open, so it waits for 10 ms. Without the lanes, it claims as a small one does. Returns
-- false under stricter isolation, where a claim that has waited would not see what the others have done.
-- Internal: called by claim. Locks: the lanes in the order of their ids; waits for large claims.
create or replace function queues.hold_lanes(lanes bigint[])
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return false;
  end if;
  if not exists (
    select from unnest(lanes[:8]) l(lane_id)
    cross join lateral (
      select p.since from queues.claim_position p where p.lane_id = l.lane_id
      order by p.lane_id desc, p.number desc limit 1) newest
    where newest.since > queues.clock() - interval '2 seconds')
  then
    perform set_config('lock_timeout', '10ms', true);  -- until the function ends
  end if;
  perform from queues.lane l where l.lane_id = any (lanes) order by l.lane_id for no key update;
  return true;
exception when lock_not_available then
  return false;
end
$$;

-- Picks the first due rows of lanes that the transaction holds, in the order priority desc, run_at, task_id, and
-- records where it ended in each lane: the next large claim goes on from there, whichever worker makes it. Rows behind
-- that place, and rows that others had locked, are found once a second, when a claim begins each lane anew. Returns the
-- ctids, and whether the rows are not locked.
-- A lane in which another claim has found nothing after this one began is left out: the claims that have waited for
-- one that emptied it would all look again.
-- Internal: called by claim. Locks: ready rows, without waiting.
create or replace function queues.pick_in_turn(
  lanes bigint[], priorities integer[], max_tasks integer, began timestamptz, out picked tid[], out unlocked boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _number constant bigint := nextval('queues.token');
  _from record;
  _first integer := 1;
  _alone boolean := true;
  _begins_anew boolean;
begin
  picked := '{}';
  unlocked := false;
  select array_agg(l.lane_id) as lanes, array_agg(l.priority) as priorities,
    array_agg(case when l.goes_on then l.run_at else '-infinity' end) as run_ats,
    array_agg(case when l.goes_on then l.task_id else '00000000-0000-0000-0000-000000000000' end) as task_ids,
    array_agg(case when l.goes_on then l.since else _now end) as since,
    array_agg(l.number) as numbers, bool_or(l.goes_on) as goes_on
  into _from
  from (
    select l.lane_id, l.priority, p.run_at, p.task_id, p.since, p.number,
      p.since > _now - interval '1 second' and p.since <= _now as goes_on
    from unnest(lanes, priorities) with ordinality l(lane_id, priority, n)
    left join lateral (
      select p.* from queues.claim_position p where p.lane_id = l.lane_id
      order by p.lane_id desc, p.number desc limit 1) p on true
    where not coalesce(p.is_empty and p.since > began, false)
    order by l.n offset 0) l;
  if _from.lanes is null then
    return;
  end if;

  -- Nobody else picks rows of a lane that is held, and small claims have locked theirs: no need to lock these. Rows
  -- that somebody had locked and left are found by the claim that begins the lane anew.
  if _from.goes_on then
    if cardinality(_from.lanes) > 1 then
      select f.n, f.alone into _first, _alone
      from queues.first_lane(_from.lanes, _from.priorities, _from.run_ats, _from.task_ids, _now) f;
    end if;
    if _alone and _from.run_ats[_first] > '-infinity' then
      picked := array(
        select r.ctid from queues.ready r
        where r.lane_id = _from.lanes[_first] and r.run_at <= _now
          and (r.run_at, r.task_id) > (_from.run_ats[_first], _from.task_ids[_first]) and r.xmax = '0'
        order by r.run_at, r.task_id limit max_tasks);
      unlocked := cardinality(picked) = max_tasks;
      if unlocked then
        insert into queues.claim_position (lane_id, number, run_at, task_id, since, is_empty)
        select r.lane_id, _number, r.run_at, r.task_id, _from.since[_first], false
        from queues.ready r where r.ctid = picked[max_tasks];
        return;
      end if;
    end if;
  end if;

  picked := queues.lock_ready(_from.lanes, _from.priorities, _from.run_ats, _from.task_ids, _now, max_tasks);
  _begins_anew := cardinality(picked) < max_tasks and _from.goes_on;
  if _begins_anew then
    picked := queues.lock_ready(_from.lanes, _from.priorities,
      array_fill('-infinity'::timestamptz, array[cardinality(_from.lanes)]), _from.task_ids, _now, max_tasks);
  end if;
  with ended as (
    select l.lane_id, l.number, l.run_at, l.task_id, case when _begins_anew then _now else l.since end as since,
      last.run_at as last_run_at, last.task_id as last_task_id
    from unnest(_from.lanes, _from.run_ats, _from.task_ids, _from.since, _from.numbers)
      l(lane_id, run_at, task_id, since, number)
    left join (
      select distinct on (r.lane_id) r.lane_id, r.run_at, r.task_id from queues.ready r
      where r.ctid = any (picked)
      order by r.lane_id, r.run_at desc, r.task_id desc) last on last.lane_id = l.lane_id),
  added as (
    insert into queues.claim_position (lane_id, number, run_at, task_id, since, is_empty)
    select e.lane_id, _number, coalesce(e.last_run_at, e.run_at), coalesce(e.last_task_id, e.task_id),
      e.since, cardinality(picked) < max_tasks
    from ended e
    where e.last_task_id is not null or e.number is not null and cardinality(picked) < max_tasks
    returning lane_id, since)
  delete from queues.claim_position p
  where p.lane_id = any (array(select a.lane_id from added a where a.since = _now));
end
$$;

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
    select f.n, f.run_at, f.task_id, f.alone into _first, _run_at, _task_id, _alone
    from queues.first_lane(lanes, priorities, from_run_at, from_task_id, due) f;
    if _first is null then
      return _found;
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

-- Finds the first of these lanes with a due task behind its cursor: its place in the list, that task, and whether no
-- other lane of its priority has one. Nulls if no lane has one.
create or replace function queues.first_lane(
  lanes bigint[], priorities integer[], from_run_at timestamptz[], from_task_id uuid[], due timestamptz,
  out n integer, out run_at timestamptz, out task_id uuid, out alone boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  -- Lateral, because the planner may implement exists by reading the whole table once. The lanes are tried in order.
  select l.n, d.run_at, d.task_id into first_lane.n, first_lane.run_at, first_lane.task_id
  from (select generate_series(1, cardinality(lanes)) as n) l
  cross join lateral (
    select r.run_at, r.task_id from queues.ready r
    where r.lane_id = lanes[l.n] and r.run_at <= due
      and (r.run_at, r.task_id) > (from_run_at[l.n], from_task_id[l.n])
    order by r.lane_id, r.run_at, r.task_id limit 1) d
  limit 1;
  alone := true;
  if priorities[first_lane.n + 1] = priorities[first_lane.n] then
    -- Types whose tasks are all suspended or delayed are such lanes.
    alone := (
      select true from (select generate_series(first_lane.n + 1, cardinality(lanes)) as n) l
      where priorities[l.n] = priorities[first_lane.n] and (
        select true from queues.ready r
        where r.lane_id = lanes[l.n] and r.run_at <= due
          and (r.run_at, r.task_id) > (from_run_at[l.n], from_task_id[l.n])
        order by r.lane_id, r.run_at, r.task_id limit 1)
      limit 1) is null;
  end if;
end
$$;

-- Claims one task, for simple workers.
-- For holdfast_worker. Locks: one ready row.
create or replace function queues.dequeue_next_available_task(
  worker_id text default null,
  queues text[] default null,
  type_prefixes text[] default null)
returns table (
  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,
  lease_until timestamptz, timeout interval, metadata jsonb)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.task_id, c.token, c.type, c.executor, c.payload, c.attempt, c.max_attempts, c.lease_until,
    c.timeout, c.metadata
  from queues.claim(coalesce(worker_id, 'backend-' || pg_backend_pid()), 1, queues, type_prefixes) c
$$;

-- Returns how long until a claim may find a task, and whether a limit holds a due task back until another ends. Zero
-- or less if a task is due that no limit holds back, else the time until the first task is due or a rate allows one;
-- null if there is nothing to wait for.
-- For holdfast_worker. Locks: none.
create or replace function queues.next_due(
  queues text[] default null, type_prefixes text[] default null, out due interval, out held boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _types constant text[] := case when type_prefixes is not null then queues.types_in_use(type_prefixes) end;
  _queues constant text[] := coalesce(
    next_due.queues, case when next_due.type_prefixes is null then array['default'] end);
  _first timestamptz;
  _limited jsonb;
begin
  select min(first.run_at) filter (where not limits.apply or first.run_at > _now),
    jsonb_agg(distinct jsonb_build_object('queue', l.queue, 'type', l.type))
      filter (where limits.apply and first.run_at <= _now)
  into _first, _limited
  from queues.lanes_of(_queues, _types) l
  cross join lateral (
    select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
  cross join lateral (
    select exists (
      select from queues.task_limit t
      where (t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type)
        and (t.max_running is not null or t.rate is not null)) as apply) limits
  where not exists (select from queues.paused_queue p where p.queue = l.queue);
  due := _first - _now;
  if _limited is not null then
    select least(due, min(lane.wait)), bool_or(lane.is_full) into due, held
    from (
      -- Null while as many run as may, because the time at which one ends is unknown.
      select case when not coalesce(bool_or(k.running >= k.max_running), false)
          then coalesce(max(k.refills_in), interval '0') end as wait,
        coalesce(bool_or(k.running >= k.max_running), false) as is_full
      from jsonb_to_recordset(_limited) as l(queue text, type text)
      cross join lateral queues.limits_of(l.queue, l.type, null, null, _now) k group by l.queue, l.type) lane;
  end if;
  -- Tasks in the lane of a concurrency key wait for the end of another one.
  held := coalesce(held, false) or exists (
    select from queues.lane l
    where l.concurrency_key > '' and (l.queue = any (_queues) or l.type = any (_types))
      and exists (select from queues.ready r where r.lane_id = l.lane_id));
end
$$;
