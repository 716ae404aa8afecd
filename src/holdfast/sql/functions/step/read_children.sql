-- Returns the children of each step of a run that waits for them, one row per step: how many there are, the results of
-- those that succeeded, in order, and {"open": how many have not ended, "others": [[place, task_id, status, reason]] of
-- all that have not succeeded, "keys": of all}. Of more than a hundred, nothing else is read while one is open.
-- Internal: called by read_steps.
create or replace function queues.read_children(parent_id uuid)
returns table (step text, count integer, results jsonb, others jsonb)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s.step, s.count, e.results, case when s.is_open and s.count > 100 then '{"open": 1}' else e.others end
  from (
    select c.step, max(c.number) as count,
      (select o.number is not null from queues.first_open_child(read_children.parent_id, c.step, coalesce((
        select w.number from queues.wait w
        where w.task_id = read_children.parent_id and w.name = c.step), 1)) o) as is_open
    from queues.child c where c.parent_id = read_children.parent_id and c.awaited group by c.step) s
  left join lateral (
    select jsonb_agg(c.result order by c.number) filter (where c.status = 'succeeded') as results,
      jsonb_build_object('open', count(*) filter (where c.status = 'open'), 'others',
        jsonb_agg(jsonb_build_array(c.number, c.child_id, c.status, c.reason) order by c.number)
        filter (where c.status <> 'succeeded'),
      'keys', case when bool_or(c.key is not null) then jsonb_agg(c.key order by c.number) end) as others
    from (
      select c.number, c.child_id, c.key, coalesce(o.result, 'null') as result, o.reason, case
        when o.status = 'succeeded' then o.status
        when (select true from queues.deletion d where d.task_id = o.task_id limit 1) then 'deleted'
        when (select true from queues.task t where t.task_id = o.task_id limit 1) is null then 'removed'
        else coalesce(o.status, 'open') end as status
      from queues.child c
      left join lateral (
        select o.status, o.result, o.reason from queues.outcome o where o.task_id = c.child_id offset 0) f on true
      -- Of a child that was continued, the end of its last run counts.
      left join lateral (
        select queues.last_run(c.child_id) as task_id where f.status = 'succeeded' and f.reason is not null offset 0) r
        on true
      left join lateral (
        select o.status, o.result, o.reason from queues.outcome o where o.task_id = r.task_id offset 0) l on true
      cross join lateral (
        select coalesce(r.task_id, c.child_id) as task_id,
          case when r.task_id is null then f.status else l.status end as status,
          case when r.task_id is null then f.result else l.result end as result,
          case when r.task_id is null then f.reason else l.reason end as reason offset 0) o
      where c.parent_id = read_children.parent_id and c.step = s.step) c) e on not (s.is_open and s.count > 100)
$$;

comment on function queues.read_children(uuid) is
  'Returns the children of each step of a run that waits for them, with their ends, one row per step.';
