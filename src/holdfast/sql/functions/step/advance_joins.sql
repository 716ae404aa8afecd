-- Moves the pointers of joins that name one of these tasks, and those of the given runs, to the next task that has not
-- ended. Returns the runs whose pointer moved, and those whose join is over. Each awaited task is looked at once in
-- all.
-- A pointer that moved has to be looked at again after the commit: its task may end before others can see the pointer.
-- Looks at 1,000 of the runs that wait for the ended tasks; the others count as moved.
-- A task that comes after others is to be cancelled if it needs their success and one has ended otherwise.
-- Internal. Locks: rows of queues.wait, without waiting. A run whose row is locked counts as moved: who holds the
-- row may not have seen the end that the caller has seen.
create or replace function queues.advance_joins(
  ended uuid[], runs uuid[], now timestamptz, out moved uuid[], out over uuid[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _most constant integer := 1000;
  _waiting constant uuid[] := array(select w.task_id from queues.wait w where w.on_task = any (ended));
  _runs constant uuid[] := runs || _waiting[:_most];
  _locked uuid[] := '{}';
  _wait queues.wait;
  _open record;
  _culprit record;
begin
  moved := _waiting[_most + 1:];
  over := '{}';
  for _wait in
    select w.* from queues.wait w
    where w.task_id = any (_runs) and w.policy is not null order by w.task_id, w.name for update skip locked
  loop
    _locked := _locked || _wait.task_id;
    if _wait.policy = 'first' then
      select _wait.number as number, _wait.on_task as task_id into _open where queues.is_open(_wait.on_task);
    else
      select o.number, o.task_id into _open
      from queues.first_open_child(_wait.task_id, case when _wait.policy = 'all' then _wait.name else '' end,
        coalesce(_wait.number, 1)) o where o.task_id is not null;
    end if;
    if _wait.policy = 'succeeded' then
      select p.task_id, p.reason into _culprit
      from queues.failed_predecessor(_wait.task_id, coalesce(_wait.number, 1), _open.number) p;
      if _culprit.task_id is not null then
        insert into queues.chore (kind, added_at, task_id, cause, cause_id, reason)
        select 'c', advance_joins.now, _wait.task_id, 'd', _culprit.task_id, _culprit.reason
        where not exists (
          select from queues.chore c
          where c.task_id = _wait.task_id and c.kind = 'c' and c.cause_id = _culprit.task_id);
        update queues.wait w set on_task = null where w.task_id = _wait.task_id and w.name = _wait.name;
        continue;
      end if;
    end if;
    if _open.task_id is null then
      over := over || _wait.task_id;
      if _wait.policy <> 'first' then
        update queues.wait w set on_task = null
        where w.task_id = _wait.task_id and w.name = _wait.name and w.on_task is not null;
      end if;
    elsif _open.task_id is distinct from _wait.on_task then
      update queues.wait w set on_task = _open.task_id, number = _open.number
      where w.task_id = _wait.task_id and w.name = _wait.name;
      moved := moved || _wait.task_id;
    end if;
  end loop;
  moved := moved || array(
    select distinct w.task_id from queues.wait w
    where w.task_id = any (_runs) and w.policy is not null and not w.task_id = any (_locked));
end
$$;

comment on function queues.advance_joins(uuid[], uuid[], timestamptz) is
  'Moves the pointers of joins to the next task that has not ended, and returns the runs whose join is over.';
