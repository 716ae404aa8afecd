-- Takes a text message from its kickoff to its end: reads the facts, decides, writes. Schedules an attempt if none is
-- outstanding, and runs again until the send has ended.
-- For holdfast_worker. Locks: the row of comms.send_sms_task.
create or replace function comms.send_sms_supervisor(payload jsonb)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _most_waits constant integer := 30;  -- for one attempt: about three days, because each wait is longer than the one before
  _usual_time constant interval := '20 seconds';
  _now constant timestamptz := queues.clock();
  -- Read.
  _send constant comms.send_sms_task := comms.lock_send_sms_task(payload);
  _id constant bigint := _send.send_sms_task_id;
  _run constant integer := comms.count_send_sms_task_runs(_id) + 1;
  _is_over constant boolean := comms.has_send_sms_task_ended(_id) or payload ->> 'run' <> _run::text;
  _has_succeeded constant boolean := comms.has_send_sms_task_succeeded(_id);
  _scheduled constant integer := comms.count_send_sms_task_scheduled(_id);
  _failures constant integer := comms.count_send_sms_task_failures(_id);
  _waits constant integer := comms.count_send_sms_task_waits(_id);
  _failure constant comms.send_sms_task_failed := comms.last_send_sms_task_failure(_id);
  _retry_until constant timestamptz := comms.first_send_sms_task_failure(_id) + _send.retry_for;
  _unknown constant record := comms.unknown_send_sms_task_outcome(_id);
  _attempt_at timestamptz := (comms.last_send_sms_task_scheduled(_id)).run_at;
  _decided record;
  _next_run_at timestamptz;
  _next_task_id uuid;
begin
  -- Think.
  if _id is null then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('there is no send_sms_task %s', coalesce(payload ->> 'send_sms_task_id', 'null')));
  elsif _is_over then
    return jsonb_build_object('success', true, 'payload', jsonb_build_object(
      'decision', 'none', 'reason', format('send_sms_task %s has ended, or another run has taken the place of this one', _id)));
  end if;
  _decided := comms.decide_send(
    _has_succeeded, _scheduled, _failures, _send.max_attempts, _send.scheduled_at, _waits, _most_waits, _failure.permanent, _failure.message,
    _failure.retry_at, _retry_until, _unknown.may_be_delivered, _unknown.repeatable_until, _send.when_unknown, _now);

  -- Write.
  if _decided.decision = 'attempt' then
    _attempt_at := _decided.attempt_at;
    insert into comms.send_sms_task_scheduled (send_sms_task_id, attempt, scheduled_at, run_at, task_id)
    values (_id, _scheduled + 1, _now, _attempt_at, queues.enqueue(
      'comms.send_sms', run_at => _attempt_at, max_attempts => 5, timeout => '1 minute', payload => jsonb_build_object(
        'task_type', 'sms', 'send_sms_task_id', _id, 'attempt', _scheduled + 1, 'before_handler', 'comms.get_sms_payload',
        'success_handler', 'comms.record_sms_success', 'error_handler', 'comms.record_sms_failure')));
  end if;
  if _decided.decision not in ('succeeded', 'failed', 'gave_up') then
    _next_run_at := case _decided.decision when 'sleep' then _send.scheduled_at
      else queues.next_check(case when _attempt_at > _now then _attempt_at + _usual_time / 2 end, _attempt_at + _usual_time) end;
    _next_task_id := queues.enqueue('comms.send_sms_supervisor', run_at => _next_run_at, max_attempts => 25,
      payload => jsonb_build_object('task_type', 'db_function', 'db_function', 'comms.send_sms_supervisor',
        'send_sms_task_id', _id, 'run', _run + 1));
  end if;
  insert into comms.send_sms_task_supervised (send_sms_task_id, run, supervised_at, decision, reason, next_run_at, next_task_id)
  values (_id, _run, _now, _decided.decision, _decided.reason, _next_run_at, _next_task_id);
  perform queues.note_supervision('comms.send_sms', _id, _next_task_id, _next_run_at, _decided.decision, _decided.reason);
  return jsonb_build_object('success', true, 'payload', jsonb_build_object(
    'run', _run, 'decision', _decided.decision, 'reason', _decided.reason, 'next_run_at', _next_run_at)
    || case _decided.decision when 'attempt' then jsonb_build_object('attempt_at', _attempt_at) else '{}' end);
end
$$;

comment on function comms.send_sms_supervisor(jsonb) is
  'Takes a text message from its kickoff to its end: reads the facts, decides, writes.';
