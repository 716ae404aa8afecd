-- Moves a waiting task to another time and returns whether it waited; other tasks are not changed.
-- Internal: called by reschedule and nudge, which check the rights. Locks: the ready row.
create or replace function queues.move_waiting(task_id uuid, run_at timestamptz, reason text, now timestamptz)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _former queues.ready;
begin
  for _try in 1..100 loop
    delete from queues.ready r where r.task_id = move_waiting.task_id returning r.* into _former;
    exit when found;
    if not exists (select from queues.ready r where r.task_id = move_waiting.task_id) then
      return false;
    end if;
    perform queues.check_retries(_try, task_id);
  end loop;

  -- A new row instead of an update: claims rely on ready rows never moving.
  insert into queues.ready (task_id, run_at, lane_id, attempt)
  select t.task_id, move_waiting.run_at, queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace),
    _former.attempt
  from queues.task t where t.task_id = move_waiting.task_id;
  perform queues.bring_back(array[task_id]);
  -- Repeating the call, for example after a lost response, is not a second act.
  if run_at <> _former.run_at then
    insert into queues.act (task_id, act, occurred_at, actor, reason, data)
    values (task_id, 'rescheduled', now, queues.actor(), left(reason, 2000),
      jsonb_build_object('from', _former.run_at, 'to', run_at));
  end if;
  perform queues.wake_for(task_id);
  return true;
end
$$;

comment on function queues.move_waiting(uuid, timestamptz, text, timestamptz) is
  'Moves a waiting task to another time and returns whether it waited; other tasks are not changed.';
