-- Enqueues a schedule's task now, in addition to its times, and returns its id. It runs even if the schedule is paused,
-- orphaned or overlapping.
-- For holdfast_client (its own schedules) and holdfast_operator. Locks: the schedule.
create or replace function queues.run_schedule(name text, reason text default null, namespace text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
  _task_id uuid;
begin
  _schedule := queues.lock_own_schedule(name, namespace);
  _schedule.jitter := '0';
  _task_id := (queues.enqueue_scheduled(_schedule, array[_now], _now))[1];
  insert into queues.schedule_firing (schedule, namespace, nominal_at, decided_at, decision, task_id)
  values (name, _schedule.namespace, _now, _now, 'forced', _task_id);
  update queues.schedule s set last_task_id = _task_id where s.name = _schedule.name
    and s.namespace = _schedule.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
  values (name, _schedule.namespace, 'forced', _now, queues.actor(), left(reason, 2000));
  return _task_id;
end
$$;

comment on function queues.run_schedule(text, text, text) is
  'Enqueues a schedule''s task now, in addition to its times, and returns its id.';
