-- Success-handler of a text message: records the success and nudges the supervisor. Repeating it changes nothing.
-- For holdfast_worker. Locks: the row of comms.send_sms_task, then the ready row of the supervisor.
create or replace function comms.record_sms_success(payload jsonb)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _send constant comms.send_sms_task := comms.lock_send_sms_task(payload -> 'original_payload');
  _id constant bigint := _send.send_sms_task_id;
  _attempt constant integer := comms.attempt_of(payload, comms.count_send_sms_task_scheduled(_id));
  _sent constant jsonb := payload -> 'worker_payload';
begin
  if _attempt is null then
    return jsonb_build_object('success', false, 'validation_failure_message', format('there is no attempt %s of send_sms_task %s',
      coalesce(payload #>> '{original_payload,attempt}', 'null'), coalesce(payload #>> '{original_payload,send_sms_task_id}', 'null')));
  elsif comms.has_sms_attempt_failed(_id, _attempt) then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('attempt %s of send_sms_task %s is recorded as failed', _attempt, _id));
  end if;
  insert into comms.send_sms_task_succeeded (send_sms_task_id, attempt, succeeded_at, provider, provider_message_id, detail)
  values (_id, _attempt, queues.clock(), _sent ->> 'provider', _sent ->> 'message_id', _sent -> 'detail')
  on conflict on constraint one_success_per_sms do nothing;
  perform queues.nudge(comms.waiting_send_sms_supervisor(_id));
  return jsonb_build_object('success', true);
end
$$;

comment on function comms.record_sms_success(jsonb) is
  'Success-handler of a text message: records the success and nudges the supervisor.';
