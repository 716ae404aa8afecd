-- Makes ended tasks wait again for the tasks that they come after, under their condition. If waived, it does not matter
-- how those ended that have ended already. Each task has a time of its own, before which it is not due.
-- Internal: called by retry and revive_dependants, which have removed the outcomes.
create or replace function queues.wait_for_others(task_ids uuid[], waived boolean, now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select t.task_id, wait_for_others.now + interval '90 years',
    queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace), 0
  from queues.task t where t.task_id = any (task_ids);
  insert into queues.wait (task_id, name, until, on_task, number, policy)
  select t.task_id, '', t.run_at, c.child_id, c.number, case when c.needs_success then 'succeeded' else 'ended' end
  from queues.task t
  cross join lateral (
    select c.child_id, c.number, c.needs_success from queues.child c
    where c.parent_id = t.task_id and c.generation = 1 and c.step = ''
      and c.number >= case when waived then (
        select o.number from queues.first_open_child(t.task_id, '', 1) o) else 1 end
    order by c.number limit 1) c
  where t.task_id = any (task_ids)
  on conflict do nothing;
  insert into queues.chore (kind, added_at, task_id)
  select 'w', wait_for_others.now, g.task_id from unnest(task_ids) g(task_id);
$$;

comment on function queues.wait_for_others(uuid[], boolean, timestamptz) is
  'Makes ended tasks wait again for the tasks that they come after.';
