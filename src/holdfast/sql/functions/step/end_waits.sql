-- Removes what runs waited for that have ended without success, or that are removed. Children that a step of them
-- still waits for are to be cancelled, unless they were started to be left.
-- Internal: called by cancel, cancel_chores, settle_mixed and recover_leases after the outcome was written, and by
-- prune.
create or replace function queues.end_waits(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  delete from queues.wait w where w.task_id = any (task_ids);
  insert into queues.chore (kind, added_at, task_id, cause, cause_id, reason)
  select distinct on (3) 'c', queues.clock(), c.child_id, 'p', c.parent_id,
    format('its parent %s %s', c.parent_id, coalesce((
      select 'ended ' || p.status from queues.outcome p where p.task_id = c.parent_id), 'was deleted'))
  from queues.task t
  join queues.child c on c.parent_id = t.task_id and c.generation = coalesce(t.generation, 1)
  where t.task_id = any (task_ids) and c.parent_id = any (task_ids) and c.ends_with_parent
    and (
      select true from queues.step s
      where s.task_id = c.parent_id and s.generation = c.generation and s.name = c.step limit 1) is null
    and (select true from queues.outcome o where o.task_id = c.child_id limit 1) is null
  order by 3, 5;
$$;

comment on function queues.end_waits(uuid[]) is
  'Removes what runs waited for that ended without success; children that they still wait for are to be cancelled.';
