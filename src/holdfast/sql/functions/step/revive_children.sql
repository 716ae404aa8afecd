-- Brings back children that were cancelled because this run, which is retried, had ended, and theirs. Those that the
-- run no longer waits for, or whose steps retention has removed, stay cancelled. Those that were only to be cancelled
-- stay as they are: see cancel_chores.
-- Internal: called by retry. Locks: outcomes, level by level, in the order of task_id.
create or replace function queues.revive_children(task_id uuid, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _level uuid[] := array[task_id];
  _children uuid[];
begin
  loop
    _children := array(
      select c.child_id from queues.child c
      where c.parent_id = any (_level) and c.generation = queues.current_generation(c.parent_id) and c.ends_with_parent
        and (
          select true from queues.step s
          where s.task_id = c.parent_id and s.generation = c.generation and s.name = c.step limit 1) is null);
    _level := array(
      select o.task_id from queues.outcome o
      where o.task_id = any (_children) and o.status = 'cancelled' and o.cause = 'p'
        and o.cause_id = any (_level)
        and (select true from queues.deletion d where d.task_id = o.task_id limit 1) is null
        and (select true from queues.step s where s.task_id = o.task_id and s.kind = 'r' limit 1) is null
      order by o.task_id for update);
    exit when _level = '{}';
    with gone as (
      delete from queues.outcome o where o.task_id = any (_level) returning o.*)
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
    select g.task_id, 'retried', revive_children.now, g.token, g.attempt, g.worker_id, queues.actor(),
      format('its parent %s is retried', g.cause_id), jsonb_build_object(
        'status', g.status, 'reason', g.reason,
        'claimed_at', g.claimed_at, 'started_at', g.started_at, 'finished_at', g.finished_at)
    from gone g;
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    select t.task_id, greatest(revive_children.now, t.run_at),
      queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace), 0
    from queues.task t where t.task_id = any (_level);
    perform queues.revive_dependants(l.task_id, revive_children.now), queues.wake_for(l.task_id)
    from unnest(_level) l(task_id);
  end loop;
end
$$;

comment on function queues.revive_children(uuid, timestamptz) is
  'Brings back children that were cancelled because this run, which is retried, had ended, and theirs.';
