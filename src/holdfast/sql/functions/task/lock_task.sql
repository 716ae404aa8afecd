-- Waits for a task: locks the row that says where it stands, if that is in one of the given places, and returns what
-- the row says. The places are ready, lease, outcome, and deletion, for a task that was deleted while it waited. If the
-- task is elsewhere, its row is only read, and status is the one that it gives. Without a task, everything is null.
-- Internal. Locks: the ready row, the lease, the outcome or the deletion; waits, then looks again.
--
-- The row of a task moves: a transaction deletes it and inserts another one, in the same table (move_ready) or in the
-- next. A session that has waited for the old row finds it deleted, and its statement does not see the new one. So
-- every function that waits for a row of a task gets it here, where it is looked for until it is found. A function that
-- skips rows of other transactions instead says in its header who looks again.
-- Each round waits for as long as lock_timeout allows. After a hundred rounds it ends with QF503.
create or replace function queues.lock_task(
  task_id uuid, places text[], out place text, out run_at timestamptz, out attempt integer, out status text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  for _round in 1..100 loop
    if 'ready' = any (places) then
      -- Most tasks that somebody waits for are there.
      select 'ready', r.run_at, r.attempt into place, run_at, attempt from queues.ready r
      where r.task_id = lock_task.task_id for update;
      if found then
        return;
      end if;
    end if;
    -- One statement: between two, the task could move and be found in neither table.
    select case when r.task_id is not null then 'ready' when l.task_id is not null then 'lease'
        when o.task_id is not null then 'outcome' when d.task_id is not null then 'deletion' end,
      coalesce(r.run_at, d.parked_run_at), coalesce(r.attempt, l.attempt, o.attempt, d.parked_attempt),
      queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
        coalesce(r.run_at, d.parked_run_at), queues.clock(),
        (select true from queues.wait w where w.task_id = t.task_id limit 1))
    into place, run_at, attempt, status
    from queues.task t
    left join queues.ready r on r.task_id = t.task_id
    left join queues.lease l on l.task_id = t.task_id
    left join queues.outcome o on o.task_id = t.task_id
    left join queues.deletion d on d.task_id = t.task_id and d.parked_run_at is not null
    where t.task_id = lock_task.task_id;
    if (place = any (places)) is not true then
      return;
    elsif place = 'ready' then
      continue;
    elsif place = 'lease' then
      select l.attempt into attempt from queues.lease l where l.task_id = lock_task.task_id for update;
    elsif place = 'outcome' then
      select o.attempt into attempt from queues.outcome o where o.task_id = lock_task.task_id for update;
    else
      select d.parked_run_at, d.parked_attempt into run_at, attempt from queues.deletion d
      where d.task_id = lock_task.task_id and d.parked_run_at is not null for update;
    end if;
    if found then
      return;
    end if;
  end loop;
  raise exception using errcode = 'QF503', message = format('task %s changes state too fast; try again', task_id);
end
$$;

comment on function queues.lock_task(uuid, text[]) is
  'Waits for the row that says where a task stands, in one of the given places, and locks it.';
