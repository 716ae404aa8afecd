-- The before-handler of an e-mail: what the provider shall send, or why nothing shall be sent. For holdfast_worker. Locks: nothing.
create or replace function comms.get_email_payload(payload jsonb)
returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _send comms.send_email_task;
  _attempt integer;
begin
  select t.* into _send from comms.send_email_task t
  where t.send_email_task_id = comms.id_of(payload, 'send_email_task_id');
  if not found then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('there is no send_email_task %s', coalesce(payload ->> 'send_email_task_id', 'null')));
  elsif comms.has_send_email_task_succeeded(_send.send_email_task_id) or comms.has_send_email_task_ended(_send.send_email_task_id) then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('send_email_task %s has ended', _send.send_email_task_id));
  end if;
  _attempt := comms.attempt_of(
    jsonb_build_object('original_payload', payload), comms.count_send_email_task_scheduled(_send.send_email_task_id));
  if _attempt is null or comms.has_email_attempt_failed(_send.send_email_task_id, _attempt) then
    return jsonb_build_object('success', false, 'validation_failure_message', format('attempt %s of send_email_task %s %s',
      coalesce(_attempt::text, payload ->> 'attempt', 'null'), _send.send_email_task_id,
      case when _attempt is null then 'was never scheduled' else 'has failed already' end));
  end if;
  return jsonb_build_object('success', true, 'payload', (
    select jsonb_build_object('to', m.recipient, 'subject', m.subject, 'text', m.text_body, 'html', m.html_body,
      'sender', m.sender, 'reply_to', m.reply_to, 'headers', m.headers, 'idempotency_key', _send.send_key)
    from comms.email_message m where m.message_id = _send.message_id));
end
$$;

comment on function comms.get_email_payload(jsonb) is
  'The before-handler of an e-mail: what the provider shall send, or why nothing shall be sent.';
