-- Locks due rows of limited lanes, as many as their limits allow, and returns their ctids. Among keys, those with fewer
-- running tasks come first, so that a thousand tasks of one key do not delay another. Rows that the same claim has
-- already locked, at a higher priority, count as running and as started. Charges nothing: the claim does that once, for
-- the tasks that it takes.
-- Internal: called by claim. Locks: limits, then ready rows, without waiting for more than some milliseconds.
create or replace function queues.lock_within_limits(lanes bigint[], due timestamptz, max_tasks integer, before tid[])
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lanes constant bigint[] := array(
    select l.lane_id from unnest(lanes) l(lane_id)
    where exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= due));
  _held integer[];
  _before jsonb;
  _used integer[];
  _row record;
  _wanted tid[];
  _picked tid[];
  _passed tid[] := '{}';
begin
  if _lanes = '{}' then
    return '{}';
  end if;
  _held := queues.hold_limits(array(select distinct g.lock from queues.gates_of(_lanes, due) g));
  -- A claim that was running when a limit was set has not inserted slots for its tasks.
  if exists (select from queues.task_limit t where t.set_at > due - interval '10 seconds') then
    perform queues.enter_running(array(
      select l.lane_id from queues.lane l
      join queues.task_limit t on t.subject = 'queue' and t.name = l.queue or t.subject = 'type' and t.name = l.type
      where t.set_at > due - interval '10 seconds'), due);
  end if;
  if before <> '{}' then
    select jsonb_object_agg(jsonb_build_array(b.subject, b.name, b.namespace, b.concurrency_key)::text, b.count) into _before from (
      select g.subject, g.name, g.namespace, g.concurrency_key, count(*) from queues.ready r
      join queues.gates_of(array(select p.lane_id from queues.ready p where p.ctid = any (before)), due) g on g.lane_id = r.lane_id
      where r.ctid = any (before) group by g.subject, g.name, g.namespace, g.concurrency_key) b;
  end if;

  -- If another transaction holds a row, it is skipped in favour of the next row of its lane.
  for _try in 1..4 loop
    _used := '{}';
    _wanted := '{}';
    for _row in
      with gate as materialized (
        select g.lane_id, g.lock, g.concurrency_key, running.count, least(g.max_running - running.count, g.may_start) - earlier.count as free,
          dense_rank() over (order by g.subject, g.name, g.namespace, g.concurrency_key)::integer as gate
        from queues.gates_of(_lanes, due) g
        cross join lateral (
          select case when _before is null then 0
            else coalesce((_before ->> jsonb_build_array(g.subject, g.name, g.namespace, g.concurrency_key)::text)::integer, 0) end as count) earlier
        cross join lateral (
          -- A slot without a lease is free.
          select count(*)::integer as count from queues.slot s
          where s.subject = g.subject and s.name = g.name and s.namespace = g.namespace and s.concurrency_key = g.concurrency_key
            and exists (select from queues.lease l where l.task_id = s.task_id and l.token = s.token)) running),
      lane as materialized (
        select g.lane_id, array_agg(g.gate) as gates, array_agg(g.free) as free, min(g.free) as room,
          max(g.count) filter (where g.concurrency_key <> '') as share
        from gate g group by g.lane_id
        -- Limits are read after they were locked. This claim may not count limits that were added meanwhile.
        having min(g.free) > 0 and bool_and(g.lock = any (_held)))
      select c.place, l.gates, l.free
      from lane l
      cross join lateral (
        select r.ctid as place, r.run_at, r.task_id, row_number() over (order by r.run_at, r.task_id) as n
        from queues.ready r where r.lane_id = l.lane_id and r.run_at <= due and r.ctid <> all (_passed)
        order by r.run_at, r.task_id limit least(l.room, max_tasks)) c
      order by coalesce(l.share + c.n, 1), c.run_at, c.task_id
    loop
      continue when exists (
        select from unnest(_row.gates, _row.free) g(gate, free) where coalesce(_used[g.gate], 0) >= g.free);
      for _gate in 1..cardinality(_row.gates) loop
        _used[_row.gates[_gate]] := coalesce(_used[_row.gates[_gate]], 0) + 1;
      end loop;
      _wanted := _wanted || _row.place;
      exit when cardinality(_wanted) = max_tasks;
    end loop;

    _picked := array(
      select r.place from (
        select r.ctid as place, r.run_at, r.task_id from queues.ready r
        where r.ctid = any (_wanted) for update skip locked) r
      order by r.run_at, r.task_id);
    exit when cardinality(_picked) = cardinality(_wanted);
    _passed := _passed || array(select w from unnest(_wanted) w where w <> all (_picked));
  end loop;
  return _picked;
end
$$;

comment on function queues.lock_within_limits(bigint[], timestamptz, integer, tid[]) is
  'Locks due rows of limited lanes, as many as their limits allow, and returns their ctids.';
