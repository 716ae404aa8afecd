-- Returns what a task belongs to and what it came from: the processes (process), the tasks that come after its batch
-- (batch), the tasks before it (members), the run that has started it (parent), what it was forked or replayed from
-- (fork_of, replay_of), and its schedule (schedule). Of a batch, it says how many tasks there are and how many have
-- ended; it counts the first 2,000. A task names its process in its payload, as the functions of the process write it.
-- For holdfast_reader, and holdfast_client for tasks of its namespace. Locks: none.
create or replace function queues.related_to(task_id uuid)
returns table (
  relation text, name text, related_id uuid, process_id bigint, type text, status text, tasks integer, ended integer)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _task record;
begin
  select t.task_id, t.type, t.namespace, t.payload, t.metadata into _task
  from queues.task_status t where t.task_id = related_to.task_id;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(task_id::text, 'null')),
      hint = 'Look for it with queues.task_status; it may have been removed by retention, or belong to another '
        'namespace.';
  end if;
  return query
  with named as (
    -- Anybody who enqueues may write anything there.
    select m.relation, null::text as name, case when _task.metadata ->> m.relation
      ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then (_task.metadata ->> m.relation)::uuid end as related_id
    from unnest(array['fork_of', 'replay_of']) m(relation)
    union all
    (select 'parent', c.step, c.parent_id from queues.child c
    where c.child_id = _task.task_id and c.step <> '' order by c.parent_id limit 5)
    union all
    (select 'batch', null, c.parent_id from queues.child c
    where c.child_id = _task.task_id and c.step = '' order by c.parent_id limit 5)
    union all
    (select 'members', null, c.parent_id from queues.child c
    where c.parent_id = _task.task_id and c.step = '' limit 1))
  select n.relation, n.name, n.related_id, null::bigint, t.type, t.status, b.tasks, b.ended
  from named n
  cross join lateral (
    select t.type, t.status from queues.task_status t
    where t.task_id = n.related_id offset 0) t
  left join lateral (
    select count(*)::integer as tasks, count(o.task_id)::integer as ended
    from (
      select c.child_id from queues.child c
      where c.parent_id = n.related_id and c.step = '' order by c.number limit 2000) c
    left join queues.outcome o on o.task_id = c.child_id) b on n.relation in ('batch', 'members')
  union all
  select 'schedule', s.name, null, null, s.type, null, null, null
  from queues.schedule_status s
  where s.name = _task.metadata ->> 'schedule' and s.namespace = _task.namespace
  union all
  select 'process', i.process, null, i.process_id, null, i.status, null, null
  from queues.process p
  cross join lateral (
    select _task.payload ->> f.field as number
    from (values (p.root_table || '_id'), (regexp_replace(p.process, '^.*\.', '') || '_task_id')) f(field)
    where _task.payload ->> f.field ~ '^[0-9]{1,18}$' limit 1) f
  cross join lateral (
    select i.process, i.process_id, i.status from queues.process_status i
    where i.process = p.process and i.process_id = f.number::bigint offset 0) i
  where starts_with(_task.type, p.schema_name || '.');
end
$$;

comment on function queues.related_to(uuid) is
  'Returns what a task belongs to and what it came from: processes, batches, runs and its schedule.';
