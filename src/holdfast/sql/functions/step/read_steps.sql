-- Returns what runs remember, one row per fact: steps, failed tries of steps that have not ended (the last one of
-- each), signals that no wait has taken (oldest first), awaited children with their ends, and waits with their
-- timeouts. A run that the worker does not hold with this token gets one row with the fact lost. Every other run gets
-- one row with the fact run: when it was enqueued, and the limits of its memory.
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
    select h.task_id, (
      select true from queues.lease l
      where l.task_id = h.task_id and l.token = h.token and l.worker_id = read_steps.worker_id limit 1) as is_held
    from jsonb_to_recordset(held) as h(task_id uuid, token bigint)),
  known as materialized (
    select g.task_id from given g where g.is_held)
  select g.task_id, case when g.is_held then 'run' else 'lost' end, null, null::integer, null, t.created_at,
    null::bigint,
    _limits || jsonb_build_object('changes', (
      select jsonb_object_agg(c.name, extract(epoch from c.first_seen_at)) from queues.change c
        where c.type = t.type)), null::jsonb
  from given g
  left join lateral (
    select t.created_at, t.type from queues.task t where t.task_id = g.task_id and g.is_held offset 0) t on true
  union all
  select k.task_id, 'step', s.name, s.number, queues.step_kind(s.kind), s.until, s.signal_id, s.result, s.error
  from known k
  cross join lateral (select s.* from queues.step s where s.task_id = k.task_id offset 0) s
  union all
  select k.task_id, 'try', t.name, t.try, null, t.retry_at, null, null, t.error
  from known k
  cross join lateral (
    select distinct on (t.name) t.name, t.try, t.retry_at, t.error from queues.step_try t
    where t.task_id = k.task_id order by t.name, t.try desc) t
  union all
  (select k.task_id, 'signal', s.name, null, null, null, s.signal_id, s.payload, null
   from known k
   cross join lateral (
     select s.* from queues.signal s
     -- Avoids exists, which the planner may implement by reading a whole table once.
     where s.task_id = k.task_id and (
       select true from queues.step p where p.signal_id = s.signal_id and p.signal_id is not null limit 1) is null
     offset 0) s
   order by s.signal_id)
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
