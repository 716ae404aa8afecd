-- Deletes tasks that the policy no longer keeps, with everything that belongs to them, in limited steps. Deletes tasks
-- that ended with this status, soft-deleted tasks (deleted), other history (history), the content of messages
-- (messages), or what ended runs remember (steps). Examines a limited number of rows, the oldest first, after the given
-- one, and returns where to continue: null at the end. Never deletes waiting or running tasks. A dry run only counts.
-- Any number of sessions may call it at once.
-- For holdfast_worker and holdfast_operator. Locks: outcomes, then deletions, then keys; or contents of messages;
-- without waiting.
create or replace function queues.prune(
  status text, max_tasks integer default 1000, past uuid default null, dry_run boolean default false)
returns table (pruned integer, examined integer, next uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _old uuid[];
  _ended uuid[];
begin
  perform queues.check_retention(status);
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  end if;
  if status = 'history' then
    examined := queues.prune_history(max_tasks, dry_run, _now);
    pruned := examined;
    return next;
    return;
  elsif status = 'messages' then
    select m.pruned, m.examined, m.next into pruned, examined, next
    from comms.prune_messages(max_tasks, past, dry_run, _now) m;
    return next;
    return;
  elsif status = 'steps' then
    select s.pruned, s.examined, s.next into pruned, examined, next
    from queues.prune_steps(max_tasks, past, dry_run, _now) s;
    return next;
    return;
  end if;

  select f.task_ids, f.examined, f.next into _old, examined, next
  from queues.find_old_tasks(status, max_tasks, coalesce(past, '00000000-0000-0000-0000-000000000000'), _now) f;
  if not coalesce(dry_run, false) and _old <> '{}' then
    _ended := array(
      select o.task_id from queues.outcome o where o.task_id = any (_old) order by o.task_id for update skip locked);
    -- Separate statements, so that they see what was committed before the lock was granted.
    if status = 'deleted' then
      -- A deleted task that has neither an outcome nor parked columns is still running.
      _old := array(
        select d.task_id from queues.deletion d
        where d.task_id = any (_old) and (d.parked_run_at is not null or d.task_id = any (_ended))
        order by d.task_id for update skip locked);
    else
      _old := queues.without_deleted(_ended);
    end if;
    -- Children of a run that has not ended are kept: it reads their results each time it resumes. A child that went
    -- on by ctx.continue_as is found through all of its runs.
    _old := array(
      select o.task_id from unnest(_old) o(task_id)
      where (
        select true from queues.child c
        where c.awaited and c.child_id = coalesce((
            select n.first_id from queues.continuation n where n.next_id = o.task_id), o.task_id)
          and (select true from queues.outcome p where p.task_id = c.parent_id limit 1) is null limit 1) is null);
    if status = 'deleted' then
      perform queues.end_waits(_old);
    end if;
    perform queues.forget_tasks(_old);
  end if;
  pruned := cardinality(_old);
  return next;
end
$$;

comment on function queues.prune(text, integer, uuid, boolean) is
  'Deletes tasks that the policy no longer keeps, with everything that belongs to them, in limited steps.';
