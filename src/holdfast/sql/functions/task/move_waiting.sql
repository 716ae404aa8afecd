-- Moves a waiting task to another time, and records it.
-- Internal: called by reschedule, nudge, nudge_process and nudge_waiting, which have locked the ready row. Locks: the
-- wait of a task that comes after others.
create or replace function queues.move_waiting(task_id uuid, run_at timestamptz, reason text, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _place tid;
  _former timestamptz;
  _lane_id bigint;
  _until timestamptz;
  _waits boolean;
begin
  -- One that waits for its concurrency key may be claimed again.
  select r.ctid, r.run_at, queues.lane_for(t.queue, t.type, t.priority, t.concurrency_key, t.namespace)
  into _place, _former, _lane_id
  from queues.ready r join queues.task t on t.task_id = r.task_id where r.task_id = move_waiting.task_id;
  -- A task that comes after others keeps waiting for them, and is not due before its new time. Read after the ready row
  -- was locked, which the end of the wait locks, too.
  select w.until into _until from queues.wait w
  where w.task_id = move_waiting.task_id and w.name = '' and w.policy is not null;
  _waits := found;
  if _waits then
    _former := _until;
    update queues.wait w set until = move_waiting.run_at where w.task_id = move_waiting.task_id and w.name = '';
  end if;
  perform queues.move_ready(array[_place], array[case when _waits then now + interval '90 years' else run_at end],
    array[_lane_id]);
  perform queues.bring_back(array[task_id]);
  -- Repeating the call, for example after a lost response, is not a second act.
  if run_at <> _former then
    insert into queues.act (task_id, act, occurred_at, actor, reason, data)
    values (task_id, 'rescheduled', now, queues.actor(), left(reason, 2000),
      jsonb_build_object('from', _former, 'to', run_at));
  end if;
  perform queues.wake_for(task_id);
end
$$;

comment on function queues.move_waiting(uuid, timestamptz, text, timestamptz) is
  'Moves a waiting task to another time, and records it.';
