-- Error-handler of a text message: records the failure with the time of the next attempt, and nudges the supervisor.
-- Repeating it changes nothing.
-- For holdfast_worker. Locks: the row of comms.send_sms_task, then the ready row of the supervisor.
create or replace function comms.record_sms_failure(payload jsonb)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _send constant comms.send_sms_task := comms.lock_send_sms_task(payload -> 'original_payload');
  _id constant bigint := _send.send_sms_task_id;
  _attempt constant integer := comms.attempt_of(payload, comms.count_send_sms_task_scheduled(_id));
  _error constant jsonb := payload -> 'error';
  _now constant timestamptz := queues.clock();
begin
  if _attempt is null then
    return jsonb_build_object('success', false, 'validation_failure_message', format('there is no attempt %s of send_sms_task %s',
      coalesce(payload #>> '{original_payload,attempt}', 'null'), coalesce(payload #>> '{original_payload,send_sms_task_id}', 'null')));
  elsif comms.has_sms_attempt_succeeded(_id, _attempt) then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('attempt %s of send_sms_task %s is recorded as succeeded', _attempt, _id));
  end if;
  insert into comms.send_sms_task_failed (
    send_sms_task_id, attempt, failed_at, kind, message, permanent, outcome_unknown, repeatable_until, retry_at, detail)
  values (_id, _attempt, _now, coalesce(_error ->> 'kind', 'unknown'), coalesce(_error ->> 'message', 'no message'),
    coalesce(_error -> 'permanent' = 'true', false), coalesce(_error -> 'outcome_unknown' = 'true', false),
    comms.repeatable_until(_error, comms.first_send_sms_task_scheduled(_id)), comms.retry_at(_error, _attempt, _now), _error)
  on conflict on constraint one_failure_per_sms_attempt do nothing;
  if found then
    perform queues.nudge(comms.waiting_send_sms_supervisor(_id));
  end if;
  return jsonb_build_object('success', true);
end
$$;

comment on function comms.record_sms_failure(jsonb) is
  'Error-handler of a text message: records the failure with the time of the next attempt, and nudges the supervisor.';
