-- Before-handler of a text message: returns the message for the provider, or why it must not be sent. Called before
-- every call of the provider, because an attempt may wait in the queue until another one could deliver twice.
-- For holdfast_worker. Locks: nothing.
create or replace function comms.get_sms_payload(payload jsonb)
returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _send comms.send_sms_task;
  _content comms.sms_message;
  _attempt integer;
  _unknown record;
  _refusal text;
begin
  select t.* into _send from comms.send_sms_task t
  where t.send_sms_task_id = comms.id_of(payload, 'send_sms_task_id');
  select m.* into _content from comms.sms_message m where m.message_id = _send.message_id;
  _attempt := comms.attempt_of(
    jsonb_build_object('original_payload', payload), comms.count_send_sms_task_scheduled(_send.send_sms_task_id));
  _unknown := comms.unknown_send_sms_task_outcome(_send.send_sms_task_id);
  _refusal := case
    when _send.send_sms_task_id is null then format('there is no send_sms_task %s', coalesce(payload ->> 'send_sms_task_id', 'null'))
    when comms.has_send_sms_task_succeeded(_send.send_sms_task_id) or comms.has_send_sms_task_ended(_send.send_sms_task_id)
      then format('send_sms_task %s has ended', _send.send_sms_task_id)
    when _attempt is null
      then format('attempt %s of send_sms_task %s was never scheduled', coalesce(payload ->> 'attempt', 'null'), _send.send_sms_task_id)
    when comms.has_sms_attempt_failed(_send.send_sms_task_id, _attempt)
      then format('attempt %s of send_sms_task %s has failed already', _attempt, _send.send_sms_task_id)
    when _send.when_unknown = 'stop' and _unknown.may_be_delivered and queues.clock() > coalesce(_unknown.repeatable_until, '-infinity')
      then format('send_sms_task %s may have been delivered, the provider recognised its idempotency key until %s, and when_unknown is stop',
        _send.send_sms_task_id, _unknown.repeatable_until)
    when _content.message_id is null then format('message %s was erased', _send.message_id)
    end;
  if _refusal is not null then
    return jsonb_build_object('success', false, 'validation_failure_message', _refusal);
  end if;
  return jsonb_build_object('success', true, 'payload', jsonb_build_object(
    'to', _content.recipient, 'text', _content.text_body, 'sender', _content.sender, 'idempotency_key', _send.send_key)
    -- Another provider would not recognize the key.
    || case when _send.when_unknown = 'stop' and _unknown.may_be_delivered then jsonb_build_object('only_provider', _unknown.provider) else '{}' end);
end
$$;

comment on function comms.get_sms_payload(jsonb) is
  'Before-handler of a text message: returns the message for the provider, or why it must not be sent.';
