-- Brings back tasks that were cancelled because they come after this one, which is retried, and those after them. Those
-- that were only to be cancelled stay: see cancel_chores.
-- Internal: called by retry. Locks: outcomes, level by level, in the order of task_id.
create or replace function queues.revive_dependants(task_id uuid, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _level uuid[] := array[task_id];
begin
  loop
    _level := array(
      select o.task_id from queues.outcome o
      where o.task_id = any (array(
          select c.parent_id from queues.child c where c.child_id = any (_level) and c.step = ''))
        and o.status = 'cancelled' and o.cause = 'd'
        and (select true from queues.deletion d where d.task_id = o.task_id limit 1) is null
      order by o.task_id for update);
    exit when _level = '{}';
    with gone as (
      delete from queues.outcome o where o.task_id = any (_level) returning o.*)
    insert into queues.act (task_id, act, occurred_at, token, attempt, worker_id, actor, reason, data)
    select g.task_id, 'retried', revive_dependants.now, g.token, g.attempt, g.worker_id, queues.actor(),
      format('after: %s is retried', revive_dependants.task_id), jsonb_build_object(
        'status', g.status, 'reason', g.reason,
        'claimed_at', g.claimed_at, 'started_at', g.started_at, 'finished_at', g.finished_at)
    from gone g;
    perform queues.wait_for_others(_level, false, now);
  end loop;
end
$$;

comment on function queues.revive_dependants(uuid, timestamptz) is
  'Brings back tasks that were cancelled because they come after this one, which is retried, and those after them.';
