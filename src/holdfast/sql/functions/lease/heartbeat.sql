-- Renews the leases of a worker and returns a verdict for each: held, cancelled, deleted, lost or busy. If another
-- transaction has locked a lease (an application that has called cancel and not committed), its verdict is busy: it is
-- not renewed, and the others are. Also records the memory of the worker, how many attempts have ended and how many did
-- so per second. If the list is complete, a task without started_at has not begun: see sweep. A task may have a
-- trouble, the name of what delays its run, for health.
-- For holdfast_worker. Locks: lease rows, then the worker's row, without waiting.
create or replace function queues.heartbeat(
  worker_id text, held jsonb, memory_bytes bigint default null, finished bigint default null,
  per_second real default null, complete boolean default true)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _now constant timestamptz := queues.clock();
  _kept integer[];
  _deleted integer[];
  _running integer;
  _busy integer[] := '{}';
  _unwritten boolean := false;
  _troubles jsonb;
begin
  with given as materialized (
    select distinct on (h.task_id, h.token) h.n::integer as n, h.task_id, h.token, h.started_at, h.progress
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint, started_at timestamptz, progress jsonb))
      with ordinality h(task_id, token, started_at, progress, n)
    order by h.task_id, h.token, h.n),
  free as materialized (
    select g.* from given g
    cross join lateral (
      select from queues.lease l
      where l.task_id = g.task_id and l.token = g.token and l.worker_id = heartbeat.worker_id
      for no key update skip locked) l),
  beaten as (
    update queues.lease l
    set lease_until = _now + l.lease_ms * interval '1 millisecond',
        started_at = coalesce(l.started_at,
          case when g.started_at is not null then greatest(l.claimed_at, least(g.started_at, _now)) end),
        progress = case when octet_length(queues.safe_text(g.progress)) <= 8192 then g.progress else l.progress end
    from free g
    where l.task_id = any (array(select task_id from free)) and l.task_id = g.task_id
    returning g.n, l.deleted, l.started_at)
  select coalesce(array_agg(b.n), '{}'), coalesce(array_agg(b.n) filter (where b.deleted), '{}'), count(b.started_at)
  into _kept, _deleted, _running from beaten b;

  if cardinality(_kept) < jsonb_array_length(held) then
    -- A separate statement, so that it sees what was committed since the first one began.
    _busy := array(
      select h.n
      from (
        select h.task_id, h.token, min(h.n)::integer as n
        from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
        group by h.task_id, h.token) h
      cross join lateral (
        select from queues.lease l
        where l.task_id = h.task_id and l.token = h.token and l.worker_id = heartbeat.worker_id offset 0) l
      where not h.n = any (_kept));
    -- That these have begun could not be written down.
    _unwritten := exists (select from unnest(_busy) b(n) where held -> (b.n - 1) ->> 'started_at' is not null);
  end if;
  if held::text like '%"trouble"%' then
    select jsonb_agg(h.entry) into _troubles from (
      select jsonb_build_object('task_id', h.task_id, 'token', h.token, 'trouble', h.trouble) as entry
      from jsonb_to_recordset(held) as h(task_id uuid, token bigint, trouble text)
      where octet_length(h.trouble) <= 40 limit 20) h;
  end if;
  update queues.worker w
  set last_heartbeat = _now, listed_at = case when complete and not _unwritten then _now else w.listed_at end,
    in_flight = cardinality(_kept) + cardinality(_busy), running = _running,
    memory_bytes = coalesce(heartbeat.memory_bytes, w.memory_bytes),
    finished = coalesce(heartbeat.finished, w.finished),
    per_second = coalesce(heartbeat.per_second, w.per_second),
    troubles = coalesce(_troubles, case when not complete then w.troubles end)
  where w.worker_id in (
    select own.worker_id from queues.worker own
    where own.worker_id = heartbeat.worker_id for no key update skip locked);

  -- A separate statement, so that it sees what was committed meanwhile.
  return query
  select h.task_id, case
      when h.n = any (_deleted) then 'deleted'
      when h.n = any (_kept) then 'held'
      when h.n = any (_busy) then 'busy'
      when o.status = 'cancelled' then 'cancelled'
      else 'lost' end
  from (
    select h.task_id, h.token, h.n as place, min(h.n) over (partition by h.task_id, h.token) as n
    from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)) h
  left join lateral (
    select o.status from queues.outcome o
    where o.task_id = h.task_id and o.token = h.token and not h.n = any (_kept) offset 0) o on true
  order by h.place;
end
$$;

comment on function queues.heartbeat(text, jsonb, bigint, bigint, real, boolean) is
  'Renews the leases of a worker and returns a verdict for each: held, cancelled, deleted, lost or busy.';
