-- Returns the children of each step of the current generation of a run, and of the tasks before it, one row per step:
-- how many there are, the results of those that succeeded, in order, and {"open": how many have not ended, "others":
-- [[place, task_id, status, reason]] of all that have not succeeded, "keys": of all}. Of more than a hundred, nothing
-- else is read while one is open. Results that may have more than 4 MiB, for all steps of the run together, are not
-- returned: {"paged": true} says so, and queues.read_results reads them. Their sizes are taken from the rows, because
-- to read a result is what costs: one that is compressed counts as 255 times its size, the most that lz4 and pglz can
-- reach, or as 1 MiB.
-- Internal: called by read_steps and children_of.
create or replace function queues.read_children(parent_id uuid)
returns table (step text, count integer, results jsonb, others jsonb)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s.step, s.count, e.results, case when s.is_open and s.count > 100 then '{"open": 1}' else e.others end
  from (
    select c.step, max(c.number) as count, count(*) over () as steps,
      (select o.number is not null from queues.first_open_child(read_children.parent_id, c.step, coalesce((
        select w.number from queues.wait w
        where w.task_id = read_children.parent_id and w.name = c.step), 1)) o) as is_open
    from queues.child c
    where c.parent_id = read_children.parent_id and c.awaited
      and c.generation in (1, queues.current_generation(read_children.parent_id))
      and (c.step = '' or c.generation = queues.current_generation(read_children.parent_id))
    group by c.step) s
  left join lateral (
    with child as materialized (
      select c.number, c.child_id, c.key, o.result, o.reason, case
        when o.status = 'succeeded' then o.status
        when (select true from queues.deletion d where d.task_id = c.child_id limit 1) then 'deleted'
        when (select true from queues.task t where t.task_id = c.child_id limit 1) is null then 'removed'
        else coalesce(o.status, 'open') end as status
      from queues.child c
      left join lateral (
        select o.status, o.result, o.reason from queues.outcome o where o.task_id = c.child_id offset 0) o on true
      where c.parent_id = read_children.parent_id and c.step = s.step
        and c.generation = case when s.step = '' then 1
          else queues.current_generation(read_children.parent_id) end)
    select case when a.bytes * s.steps <= 4194304 then (
        select jsonb_agg(coalesce(c.result, 'null') order by c.number) from child c where c.status = 'succeeded')
        end as results,
      case when a.bytes * s.steps <= 4194304 then a.others else a.others || '{"paged": true}' end as others
    from (
      select coalesce(sum(case when pg_column_compression(c.result) is null then pg_column_size(c.result)
          else least(255 * pg_column_size(c.result)::bigint, 1048576) end) filter (where c.status = 'succeeded'), 0)
          as bytes,
        jsonb_build_object('open', count(*) filter (where c.status = 'open'), 'others',
          jsonb_agg(jsonb_build_array(c.number, c.child_id, c.status, left(c.reason, 500)) order by c.number)
          filter (where c.status <> 'succeeded'),
        'keys', case when bool_or(c.key is not null) then jsonb_agg(c.key order by c.number) end) as others
      from child c) a) e on not (s.is_open and s.count > 100)
$$;

comment on function queues.read_children(uuid) is
  'Returns the children of each step of a run that waits for them, with their ends, one row per step.';
