-- Returns the tasks that come after a running one and have not begun, and keeps them from beginning until the
-- transaction ends. One that was cancelled because another task before it failed counts, because a retry brings it
-- back. Refused if there is none.
-- Internal: called by start_children. Locks: rows of queues.wait, in the order of task_id.
create or replace function queues.lock_batch(member uuid)
returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _after uuid[];
begin
  _after := array(select distinct c.parent_id from queues.child c where c.child_id = member and c.step = '');
  if _after = '{}' then
    raise exception using errcode = 'QF412',
      message = format('task %s is in no batch: no task comes after it', member),
      hint = 'Enqueue it with enqueue_many(…, then=…), or name it in after=[…].';
  end if;
  perform from queues.wait w where w.task_id = any (_after) and w.name = '' order by w.task_id for update;
  -- A separate statement, so that it sees what was committed before the lock was granted.
  _after := array(
    select a.task_id from unnest(_after) a(task_id)
    where (select true from queues.wait w where w.task_id = a.task_id and w.name = '')
      or (select true from queues.outcome o
        where o.task_id = a.task_id and o.status = 'cancelled' and o.cause = 'd')
    order by a.task_id);
  if _after = '{}' then
    raise exception using errcode = 'QF412',
      message = format('the batch of task %s is closed: the task after it has begun or ended', member),
      hint = 'Add tasks before the last task of the batch has ended.';
  end if;
  return _after;
end
$$;

comment on function queues.lock_batch(uuid) is
  'Returns the tasks that come after a running one, and keeps them from beginning until the transaction ends.';
