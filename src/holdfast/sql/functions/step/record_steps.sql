-- Records steps and failed tries of running tasks, and returns a verdict for each run: recorded, already, cancelled,
-- lost or busy. A run is {"task_id", "token", "steps": [{"name", "number", "kind", "tries", "took_ms", "until",
-- "signal_id", "result", "error"}], "tries": [{"name", "try", "tries", "retry_at", "error"}]}. A step that is recorded
-- never changes: already means that some of the steps were there, and returns what is stored of them. Only the worker
-- that holds the lease with this token records; the lease stays locked until the commit, so no other claim can begin
-- before. The commit waits for the disk unless every run has "lazy": true.
-- For holdfast_worker. Locks: lease rows, without waiting.
create or replace function queues.record_steps(worker_id text, runs jsonb)
returns table (task_id uuid, verdict text, stored jsonb)
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
  _now constant timestamptz := queues.clock();
  _checked boolean;
  _places integer[];
  _given integer;
  _written integer;
  _names text[];
begin
  _checked := queues.check_batch('runs', runs);
  if jsonb_path_exists(runs, 'strict $[*] ? (!(@.lazy == true) || (@.lazy == true) is unknown)') then
    perform queues.commit_to_disk();
  end if;
  perform queues.check_steps(runs);
  select coalesce(array_agg(g.n), '{}') into _places
  from (
    select r.n::integer as n, r.task_id, r.token
    from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint)) with ordinality r(task_id, token, n)
    order by r.task_id) g
  cross join lateral (
    select from queues.lease l
    where l.task_id = g.task_id and l.token = g.token and l.worker_id = record_steps.worker_id
      for no key update skip locked) l;
  select i.given, i.written, i.names into _given, _written, _names from queues.insert_steps(runs, _places, _now) i;

  if cardinality(_places) = jsonb_array_length(runs) and _written = _given then
    return query
    select r.task_id, 'recorded', null::jsonb
    from rows from (jsonb_to_recordset(runs) as (task_id uuid)) with ordinality r(task_id, n) order by r.n;
    return;
  end if;
  -- A separate statement, so that it sees what was committed meanwhile.
  return query
  select r.task_id, case
      when r.n = any (_places) then case when s.stored is null then 'recorded' else 'already' end
      when (select true from queues.act a
        where a.task_id = r.task_id and a.token = r.token and a.act = 'cancelled' limit 1) then 'cancelled'
      when (select true from queues.lease l
        where l.task_id = r.task_id and l.token = r.token and l.worker_id = record_steps.worker_id limit 1) then 'busy'
      else 'lost' end, s.stored
  from rows from (jsonb_to_recordset(runs) as (task_id uuid, token bigint, steps jsonb))
    with ordinality r(task_id, token, steps, n)
  left join lateral (
    select jsonb_agg(jsonb_build_object('name', p.name, 'token', p.token, 'result', p.result, 'error', p.error))
      as stored
    from jsonb_to_recordset(r.steps) as g(name text)
    cross join lateral (
      select p.* from queues.step p
      where p.task_id = r.task_id and p.generation = queues.current_generation(r.task_id) and p.name = g.name
      offset 0) p
    where _written < _given and r.n = any (_places) and r.task_id || ' ' || p.name <> all (coalesce(_names,
      '{}'))) s on true
  order by r.n;
end
$$;

comment on function queues.record_steps(text, jsonb) is
  'Records steps and failed tries of running tasks, and returns a verdict for each run.';
