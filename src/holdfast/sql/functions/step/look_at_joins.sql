-- Looks at joins, as far as it comes, and returns how many of the tasks that they wait for have ended. Where it stopped
-- is a chore of its own, with which the next call goes on. Removes what ended runs still seem to wait for.
-- Internal: called by do_chores. Locks: that chore, then rows of queues.wait, then ready rows, without waiting.
create or replace function queues.look_at_joins(max_chores integer, now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _last uuid;
  _tasks uuid[];
  _ended uuid[];
begin
  with begun as (
    delete from queues.chore c
    where c.kind = 'j' and c.chore_id in (
      select j.chore_id from queues.chore j where j.kind = 'j' for update skip locked)
    returning c.task_id)
  select max(b.task_id::text)::uuid into _last from begun b;
  if _last is null and exists (select from queues.chore c where c.kind = 'j') then
    return 0;  -- another session is at it
  end if;
  _tasks := array(
    select distinct w.on_task from queues.wait w
    where w.on_task > coalesce(_last, '00000000-0000-0000-0000-000000000000') order by w.on_task limit max_chores);
  if cardinality(_tasks) = max_chores then
    insert into queues.chore (kind, added_at, task_id) values ('j', now, _tasks[max_chores]);
  end if;
  delete from queues.wait w
  where w.on_task = any (_tasks) and (select true from queues.outcome o where o.task_id = w.task_id limit 1);
  _ended := array(select t.task_id from unnest(_tasks) t(task_id) where not queues.is_open(t.task_id));
  perform queues.settle_joins(_ended, '{}', now);
  return cardinality(_ended);
end
$$;

comment on function queues.look_at_joins(integer, timestamptz) is
  'Looks at joins, as far as it comes, and returns how many of the tasks that they wait for have ended.';
