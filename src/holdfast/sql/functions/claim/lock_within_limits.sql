-- Locks due rows of limited lanes, as many as their limits leave room for, and answers where they are. Among keys, those that
-- run less come first, so that a thousand tasks of one do not keep another waiting. Spends the rate of what it locked.
-- What the same claim has locked before, at a higher priority, counts as running.
-- Behind claim. Locks: limits, then ready rows, never waiting long for one.
create or replace function queues.lock_within_limits(lanes integer[], due timestamptz, max_tasks integer, before tid[])
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _before jsonb;
  _used jsonb := '{}';
  _row record;
  _picked tid[] := '{}';
begin
  if not queues.hold_limits(array(select distinct g.cover from queues.gates_of(lanes, due) g order by g.cover)) then
    return '{}';
  end if;
  if before <> '{}' then
    select jsonb_object_agg(b.gate, b.count) into _before from (
      select g.gate, count(*) from queues.ready r
      join queues.gates_of(array(select p.lane_id from queues.ready p where p.ctid = any (before)), due) g on g.lane_id = r.lane_id
      where r.ctid = any (before) group by g.gate) b;
  end if;

  for _row in
    with gate as materialized (
      select g.lane_id, g.gate, running.count, least(g.max_running - running.count, g.may_start) as free
      from queues.gates_of(lanes, due) g
      cross join lateral (
        -- A slot whose lease is gone is free.
        select count(*)::integer + coalesce((_before ->> g.gate)::integer, 0) as count from queues.slot s
        where s.gate = g.gate and exists (select from queues.lease l where l.task_id = s.task_id and l.token = s.token)) running),
    lane as materialized (
      select g.lane_id, array_agg(g.gate) as gates, array_agg(g.free) as free, min(g.free) as room,
        max(g.count) filter (where g.gate like 'key:%') as share
      from gate g group by g.lane_id having min(g.free) > 0)
    select c.place, l.gates, l.free
    from lane l
    cross join lateral (
      select r.ctid as place, r.run_at, r.task_id, row_number() over (order by r.run_at, r.task_id) as n
      from queues.ready r where r.lane_id = l.lane_id and r.run_at <= due
      order by r.run_at, r.task_id limit least(l.room, max_tasks)) c
    order by coalesce(l.share + c.n, 1), c.run_at, c.task_id
  loop
    continue when exists (
      select from unnest(_row.gates, _row.free) g(gate, free) where coalesce((_used ->> g.gate)::integer, 0) >= g.free);
    _used := _used || (select jsonb_object_agg(g, coalesce((_used ->> g)::integer, 0) + 1) from unnest(_row.gates) g);
    _picked := _picked || _row.place;
    exit when cardinality(_picked) = max_tasks;
  end loop;

  _picked := array(
    select r.place from (
      select r.ctid as place, r.run_at, r.task_id from queues.ready r
      where r.ctid = any (_picked) for update skip locked) r
    order by r.run_at, r.task_id);
  perform queues.spend_rate(_picked, due);
  return _picked;
end
$$;

comment on function queues.lock_within_limits(integer[], timestamptz, integer, tid[]) is
  'Locks due rows of limited lanes, as many as their limits leave room for, and answers where they are.';
