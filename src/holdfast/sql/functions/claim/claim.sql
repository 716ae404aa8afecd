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
  _now constant timestamptz := queues.clock();
  _queues constant text[] := coalesce(queues, case when type_prefixes is null then array['default'] end);
  _types constant text[] := case when type_prefixes is not null then queues.types_in_use(type_prefixes) end;
  _least constant uuid := '00000000-0000-0000-0000-000000000000';
  _no_crash boolean;
  _limits boolean;
  _paused boolean;
  _lanes record;
  _picked tid[];
  _blocked tid[] := '{}';
  _misplaced tid[] := '{}';
  _namespace text;
  _key text;
  _run_at timestamptz;
  _awaited boolean;
  _generation integer;
begin
  select exists (select from queues.crash_detector), exists (select from queues.task_limit),
    exists (select from queues.paused_queue)
  into _no_crash, _limits, _paused;
  if not _no_crash then
    perform queues.skip_lost_tokens();
  end if;
  -- Cursors do not apply to limited lanes, in which a claim may leave tasks behind.
  if _limits or _paused or _types is not null then
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
          or l.type = '' and (_limits or (l.queue = any (_queues)) is not true), false) as mixed
      from queues.lanes_of(_queues, _types) l
      left join lateral (
        select bool_or(t.max_running is not null) as max_running, bool_or(t.rate is not null) as rate
        from queues.task_limit t
        where _limits and (t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type)) limits
        on true
      where not exists (select from queues.paused_queue p where p.queue = l.queue)
      order by l.priority desc offset 0) l;
  else
    -- The same with nothing to look up: an ordinary claim spends a third of its time on the statement above.
    select array_agg(l.lane_id) as ids, array_agg(l.priority) as priorities,
      array_agg(case when claim.after is null or l.mixed then '-infinity'
        else coalesce((claim.after -> l.lane_id::text ->> 'run_at')::timestamptz, '-infinity') end) as run_ats,
      array_agg(case when claim.after is null or l.mixed then _least
        else coalesce((claim.after -> l.lane_id::text ->> 'task_id')::uuid, _least) end) as task_ids,
      bool_or(l.mixed) as mixed, null::bigint[] as limited, null::bigint[] as rated
    into _lanes
    from (
      select l.lane_id, l.priority, l.concurrency_key is not null as mixed from queues.lane l
      where l.queue = any (_queues) and coalesce(l.concurrency_key, '') = '' order by l.priority desc offset 0) l;
  end if;
  if _lanes.ids is null then
    return;
  elsif _lanes.mixed then
    select w.picked, w.blocked, w.misplaced into _picked, _blocked, _misplaced
    from queues.lock_within_limits(_lanes.ids, _lanes.priorities, _lanes.run_ats, _lanes.task_ids, _queues,
      type_prefixes, _now, max_tasks) w;
  else
    _picked := coalesce(queues.lock_ready(_lanes.ids, _lanes.priorities, _lanes.run_ats, _lanes.task_ids, _now,
      max_tasks), '{}');
  end if;

  -- Nothing is charged or moved before this point, so that looking again costs nothing.
  if cardinality(_picked) < max_tasks and after is not null then
    return query select c.* from queues.claim(worker_id, max_tasks, queues, type_prefixes, lease) c;
    return;
  end if;
  if _misplaced <> '{}' then
    perform queues.set_aside(_misplaced, false);
  end if;
  if _blocked <> '{}' then
    perform queues.set_aside(_blocked, true);
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
    delete from queues.ready r where r.ctid = any (_picked)
    returning r.task_id, r.run_at, r.lane_id, r.attempt + 1 as attempt),
  -- One scan fetches all tasks by their ids and visits each index page once. They are sorted here and read below in
  -- that order. The sort columns come first, because reaching a column behind variable-width columns means walking over
  -- those.
  work as materialized (
    select t.priority, g.run_at, g.task_id, g.lane_id, g.attempt, nullif(g.run_at, t.run_at) as other_run_at,
      t.max_attempts, t.timeout, coalesce(t.lease, claim.lease, interval '30 seconds') as lease, t.type, t.queue,
      t.executor, t.metadata, t.payload, t.namespace, t.concurrency_key, t.generation,
      case when t.max_attempts = 1 or t.concurrency_key is not null or g.lane_id = any (_lanes.limited)
        or g.lane_id = any (_lanes.rated) then queues.commit_to_disk() end as durable,
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
    from work w)
  select w.task_id, claim.token, w.type, w.executor, w.payload, w.attempt, w.max_attempts::integer, _now + w.lease,
    w.timeout, w.metadata, w.run_at, w.lane_id, w.queue, w.ends_at
  from work w;
end
$$;

comment on function queues.claim(text, integer, text[], text[], interval, jsonb) is
  'Leases the first due tasks of the subscribed queues and types, in the order priority desc, run_at, task_id.';
