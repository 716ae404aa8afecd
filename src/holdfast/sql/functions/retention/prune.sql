-- Deletes tasks that the policy no longer keeps, with everything that belongs to them, in limited steps. Deletes tasks
-- that ended with this status, soft-deleted tasks (deleted), other history (history), the content of messages
-- (messages), or what ended runs remember (steps). Examines a limited number of rows, the oldest first, after the given
-- one, and returns where to continue: null at the end. Never deletes waiting or running tasks. A dry run only counts.
-- Without a task to continue from, it goes on where the last such call stopped, and passes over what those before have
-- kept; once a day it begins at the oldest. Any number of sessions may call it at once; of those calls, one at a time.
-- For holdfast_worker and holdfast_operator. Locks: the mark of the status; outcomes, then deletions, then keys; or
-- contents of messages; without waiting.
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
  _oldest constant uuid := '00000000-0000-0000-0000-000000000000';
  _goes_on constant boolean := past is null and status <> 'history' and not coalesce(dry_run, false);
  _past uuid := coalesce(past, _oldest);
  _last uuid;
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
  end if;
  if _goes_on then
    select m.past into _past from queues.retention_mark m where m.status = prune.status for update skip locked;
    if not found then  -- another session is at it
      pruned := 0;
      examined := 0;
      return next;
      return;
    end if;
  end if;

  if status = 'messages' then
    select m.pruned, m.examined, m.next, _past into pruned, examined, next, _last
    from comms.prune_messages(max_tasks, _past, dry_run, _now) m;
  elsif status = 'steps' then
    select s.pruned, s.examined, s.next, s.last into pruned, examined, next, _last
    from queues.prune_steps(max_tasks, _past, dry_run, _now) s;
  else
    select f.task_ids, f.examined, f.next, f.last into _old, examined, next, _last
    from queues.find_old_tasks(status, max_tasks, _past, _now) f;
  end if;
  if _goes_on then
    update queues.retention_mark m
    set past = case when next is not null then next when m.full_pass_at > _now - interval '1 day' then _last
        else _oldest end,
      full_pass_at = case when next is not null or m.full_pass_at > _now - interval '1 day' then m.full_pass_at
        else _now end
    where m.status = prune.status;
  end if;
  if status in ('messages', 'steps') then
    return next;
    return;
  end if;
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
    -- Children of a run that has not ended are kept: its current generation reads their results each time it resumes.
    _old := array(
      select o.task_id from unnest(_old) o(task_id)
      where (
        select true from queues.child c
        where c.awaited and c.child_id = o.task_id
          and (c.step = '' or c.generation = queues.current_generation(c.parent_id))
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
