-- Leases the first due tasks of the subscribed queues and types, in the order priority desc, run_at, task_id. A worker
-- subscribes to queues, type prefixes, or both; with neither, to the queue "default". Counts the attempt. Limited tasks
-- are claimed as far as their limits allow; among concurrency keys, those with fewer running tasks come first.
-- For holdfast_worker. Locks: ready rows, without waiting; after a crash of the server first the row of
-- queues.unbroken.
--
-- "after" is the claim cursor: {lane_id: {"run_at", "task_id"}}, the last row that the same worker got from each lane.
-- With it, a claim skips rows that were deleted but that an old snapshot keeps in the index. A claim does not see tasks
-- that were inserted behind the cursor, so a worker drops the cursor after a second, and a claim that finds too few
-- tasks looks again without it.
create or replace function queues.claim(
  worker_id text,
  max_tasks integer default 1,
  queues text[] default null,
  type_prefixes text[] default null,
  lease interval default null,
  after jsonb default null)
returns table (
  task_id uuid, token bigint, type text, executor text, payload jsonb, attempt integer, max_attempts integer,
  lease_until timestamptz, timeout interval, metadata jsonb, run_at timestamptz, lane_id bigint)
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
  -- Losing a claim in a crash loses nothing: the tasks are still ready.
  _hasty constant boolean := queues.allow_to_lose();
  _now constant timestamptz := queues.clock();
  _queues constant text[] := coalesce(queues, case when type_prefixes is null then array['default'] end);
  _types constant text[] := case when type_prefixes is not null then queues.types_in_use(type_prefixes) end;
  _wanted integer := max_tasks;
  _unbroken boolean;
  _limits boolean;
  _rank record;
  _picked tid[] := '{}';
  _limited bigint[] := '{}';
  _token bigint;
begin
  select exists (select from queues.unbroken), exists (select from queues.task_limit) into _unbroken, _limits;
  if not _unbroken then
    perform queues.skip_lost_tokens();
  end if;
  for _rank in
    select l.priority, array_agg(l.lane_id) filter (where not limits.apply) as lanes,
      array_agg(coalesce((claim.after -> l.lane_id::text ->> 'run_at')::timestamptz, '-infinity')) filter (where not limits.apply) as run_ats,
      array_agg(coalesce((claim.after -> l.lane_id::text ->> 'task_id')::uuid, '00000000-0000-0000-0000-000000000000'))
        filter (where not limits.apply) as task_ids,
      array_agg(l.lane_id) filter (where limits.apply) as limited
    from queues.lanes_of(_queues, _types) l
    cross join lateral (
      select l.concurrency_key is not null or _limits and exists (
        select from queues.task_limit t
        where (t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type)
          and (t.max_running is not null or t.rate is not null)) as apply) limits
    where not exists (select from queues.paused_queue p where p.queue = l.queue)
    group by l.priority order by l.priority desc
  loop
    if _rank.limited is null then
      _picked := _picked || coalesce(
        queues.lock_ready(_rank.lanes, _rank.run_ats, _rank.task_ids, _now, _wanted), '{}');
    else
      _limited := _limited || _rank.limited;
      _picked := _picked || queues.lock_mixed(_rank.lanes, _rank.run_ats, _rank.task_ids, _rank.limited, _now, _wanted, _picked);
    end if;
    _wanted := max_tasks - cardinality(_picked);
    exit when _wanted = 0;
  end loop;

  -- Limits are charged only from here on, so tasks that were examined but not taken cost nothing.
  if _wanted > 0 and after is not null then
    return query select c.* from queues.claim(worker_id, max_tasks, queues, type_prefixes, lease) c;
    return;
  elsif _picked = '{}' then
    return;
  end if;

  _token := nextval('queues.token');
  if _limited <> '{}' then
    perform queues.take_slots(_picked, _limited, _token, _now);
    perform queues.spend_rate(_picked, _limited, _now);
  end if;
  return query
  with gone as (
    delete from queues.ready r where r.ctid = any (_picked)
    returning r.task_id, r.run_at, r.lane_id, r.attempt + 1 as attempt),
  -- One scan fetches all tasks by their ids and visits each index page once. They are sorted here and read below in
  -- that order. The sort columns come first, because reaching a column behind variable-width columns means walking over
  -- those.
  work as materialized (
    select t.priority, g.run_at, g.task_id, g.lane_id, g.attempt, t.max_attempts, t.timeout,
      coalesce(t.lease, claim.lease, interval '30 seconds') as lease, t.type, t.executor, t.metadata, t.payload
    from gone g join queues.task t on t.task_id = g.task_id
    where t.task_id = any (array(select task_id from gone))
    order by t.priority desc, g.run_at, g.task_id),
  held as (
    insert into queues.lease (task_id, token, claimed_at, lease_until, run_at, lane_id, attempt, lease_ms, deleted, worker_id)
    select w.task_id, _token, _now, _now + w.lease, w.run_at, w.lane_id, w.attempt,
      (extract(epoch from w.lease) * 1000)::integer, false, claim.worker_id
    from work w)
  select w.task_id, _token, w.type, w.executor, w.payload, w.attempt, w.max_attempts, _now + w.lease, w.timeout,
    w.metadata, w.run_at, w.lane_id
  from work w;
end
$$;

comment on function queues.claim(text, integer, text[], text[], interval, jsonb) is
  'Leases the first due tasks of the subscribed queues and types, in the order priority desc, run_at, task_id.';
