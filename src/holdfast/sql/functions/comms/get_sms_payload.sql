-- The before-handler of a text message: what the provider shall send, or why nothing shall be sent. For holdfast_worker. Locks: nothing.
create or replace function comms.get_sms_payload(payload jsonb)
returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _send comms.send_sms_task;
  _attempt integer;
begin
  select t.* into _send from comms.send_sms_task t
  where t.send_sms_task_id = comms.id_of(payload, 'send_sms_task_id');
  if not found then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('there is no send_sms_task %s', coalesce(payload ->> 'send_sms_task_id', 'null')));
  elsif comms.has_send_sms_task_succeeded(_send.send_sms_task_id) or comms.has_send_sms_task_ended(_send.send_sms_task_id) then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('send_sms_task %s has ended', _send.send_sms_task_id));
  end if;
  _attempt := comms.attempt_of(
    jsonb_build_object('original_payload', payload), comms.count_send_sms_task_scheduled(_send.send_sms_task_id));
  if _attempt is null or comms.has_sms_attempt_failed(_send.send_sms_task_id, _attempt) then
    return jsonb_build_object('success', false, 'validation_failure_message', format('attempt %s of send_sms_task %s %s',
      coalesce(_attempt::text, payload ->> 'attempt', 'null'), _send.send_sms_task_id,
      case when _attempt is null then 'was never scheduled' else 'has failed already' end));
  end if;
  return jsonb_build_object('success', true, 'payload', (
    select jsonb_build_object('to', m.recipient, 'text', m.text_body, 'sender', m.sender, 'idempotency_key', _send.send_key)
    from comms.sms_message m where m.message_id = _send.message_id));
end
$$;

comment on function comms.get_sms_payload(jsonb) is
  'The before-handler of a text message: what the provider shall send, or why nothing shall be sent.';
