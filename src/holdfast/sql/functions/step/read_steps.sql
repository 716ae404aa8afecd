-- Returns what the current generation of runs remembers, one row per fact: steps, failed tries of steps that have not
-- ended (the last one of each), signals that no wait has taken, awaited children with their ends, and waits with their
-- timeouts. A run that the worker does not hold with this token gets one row with the fact lost. Every other run gets
-- one row with the fact run: when its generation began, which is when it was enqueued or went on, the limits of its
-- memory, and the changes of its type. A signal has its payload if the run waits for its name, or if held names it in
-- "signals": the oldest first, about 1 MiB for each name. Of all others, there is one row for each name, with their
-- number.
-- For holdfast_worker. Locks: none.
create or replace function queues.read_steps(worker_id text, held jsonb)
returns table (
  task_id uuid, fact text, name text, number integer, kind text, until timestamptz, signal_id bigint, result jsonb,
  error jsonb)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _limits constant jsonb := (
    select jsonb_object_agg(s.name, s.value) from queues.setting s
    where s.name = any ('{max_steps,max_memo_bytes,max_result_bytes}'));
begin
  return query
  with given as materialized (
    select h.task_id, h.signals, (
      select coalesce(l.generation, 1) from queues.lease l
      where l.task_id = h.task_id and l.token = h.token and l.worker_id = read_steps.worker_id limit 1) as generation
    from jsonb_to_recordset(held) as h(task_id uuid, token bigint, signals text[])),
  known as materialized (
    select g.task_id, g.signals, g.generation from given g where g.generation is not null),
  untaken as materialized (
    select k.task_id, s.signal_id, s.name, s.bytes, coalesce(s.name = any (k.signals), false) or coalesce((
      select true from queues.wait w where w.task_id = k.task_id and w.signal = s.name limit 1), false) as wanted
    from known k
    cross join lateral (
      select s.signal_id, s.name, s.bytes from queues.signal s
      -- Avoids exists, which the planner may implement by reading a whole table once.
      where s.task_id = k.task_id and (
        select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
      offset 0) s),
  mail as materialized (
    select u.task_id, u.signal_id, u.name, u.wanted and sum(u.bytes) filter (where u.wanted)
      over (partition by u.task_id, u.name order by u.signal_id) - u.bytes < 1048576 as is_read
    from untaken u)
  select g.task_id, case when g.generation is not null then 'run' else 'lost' end, null, null::integer, null,
    t.begun_at,
    null::bigint,
    _limits || jsonb_build_object('changes', (
      select jsonb_object_agg(c.name, extract(epoch from c.first_seen_at)) from queues.change c
        where c.type = t.type)), null::jsonb
  from given g
  left join lateral (
    select t.type, case when g.generation = 1 then t.created_at else (
      select b.ended_at from queues.generation b where b.task_id = t.task_id and b.number = g.generation - 1) end
      as begun_at
    from queues.task t
    where t.task_id = g.task_id and g.generation is not null offset 0) t on true
  union all
  select k.task_id, 'step', s.name, s.number, queues.step_kind(s.kind), s.until, s.signal_id, s.result, s.error
  from known k
  cross join lateral (
    select s.* from queues.step s where s.task_id = k.task_id and s.generation = k.generation offset 0) s
  union all
  select k.task_id, 'try', t.name, t.try, null, t.retry_at, null, null, t.error
  from known k
  cross join lateral (
    select distinct on (e.step) e.step as name, e.step_try as try, e.retry_at, e.detail as error from queues.error e
    where e.task_id = k.task_id and e.generation = k.generation and e.step is not null
    order by e.step, e.step_try desc) t
  union all
  (select m.task_id, 'signal', m.name, null, null, null, m.signal_id, (
     select s.payload from queues.signal s where s.signal_id = m.signal_id limit 1), null
   from mail m where m.is_read order by m.signal_id)
  union all
  select m.task_id, 'signal', m.name, count(*)::integer, null, null, null, null, null
  from mail m where not m.is_read group by m.task_id, m.name
  union all
  select k.task_id, 'children', c.step, c.count, null, null, null, c.results, c.others
  from known k
  cross join lateral queues.read_children(k.task_id) c
  union all
  select k.task_id, 'wait', w.name, w.number, w.policy, w.until, null, null, null
  from known k
  cross join lateral (select w.* from queues.wait w where w.task_id = k.task_id offset 0) w;
end
$$;

comment on function queues.read_steps(text, jsonb) is
  'Returns what runs remember: steps, failed tries, signals that no wait has taken, and waits with their timeouts.';
