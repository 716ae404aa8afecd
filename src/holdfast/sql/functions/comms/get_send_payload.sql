-- Before-handler of a message: returns the message for the provider, or why it must not be sent. Called before every
-- call of the provider, because an attempt may wait in the queue until another one could deliver twice.
-- Internal; comms.get_email_payload and comms.get_sms_payload are for holdfast_worker. Locks: nothing.
create or replace function comms.get_send_payload(channel text, payload jsonb)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _name constant text := 'send_' || channel || '_task';
  _id constant bigint := comms.send_id(channel, payload);
  _facts constant comms.send_facts := comms.read_facts(_id);
  _attempt constant integer := comms.attempt_of(payload, _facts.scheduled);
  _send comms.send_task;
  _content comms.message_content;
  _refusal text;
  _message jsonb;
begin
  select t.* into _send from comms.send_task t where t.send_task_id = _id and t.channel = get_send_payload.channel;
  select c.* into _content from comms.message_content c where c.message_id = _send.message_id;
  _refusal := case
    when _send.send_task_id is null
      then format('there is no %s %s', _name, coalesce(payload ->> (_name || '_id'), 'null'))
    when _facts.has_succeeded or _facts.has_ended then format('%s %s has ended', _name, _id)
    when _attempt is null
      then format('attempt %s of %s %s was never scheduled', coalesce(payload ->> 'attempt', 'null'), _name, _id)
    when comms.attempt_result(_id, _attempt) = 'failed'
      then format('attempt %s of %s %s has failed already', _attempt, _name, _id)
    when _send.when_unknown = 'stop' and _facts.may_be_delivered
      and queues.clock() > coalesce(_facts.repeatable_until, '-infinity')
      then format('%s %s may have been delivered, the provider recognised its idempotency key until %s, '
        'and when_unknown is stop', _name, _id, _facts.repeatable_until)
    when _content.message_id is null then format('message %s was erased', _send.message_id)
    end;
  if _refusal is not null then
    return jsonb_build_object('success', false, 'validation_failure_message', _refusal);
  end if;
  _message := jsonb_build_object(
    'to', _content.recipient, 'text', _content.text_body, 'sender', _content.sender, 'idempotency_key', _send.send_key);
  if channel = 'email' then
    _message := _message || jsonb_build_object('subject', _content.subject, 'html', _content.html_body,
      'reply_to', _content.reply_to, 'headers', _content.headers);
  end if;
  if _send.when_unknown = 'stop' and _facts.may_be_delivered then
    -- Another provider would not recognize the key.
    _message := _message || jsonb_build_object('only_provider', _facts.provider);
  end if;
  return jsonb_build_object('success', true, 'payload', _message);
end
$$;

comment on function comms.get_send_payload(text, jsonb) is
  'Before-handler of a message: returns the message for the provider, or why it must not be sent.';

create or replace function comms.get_email_payload(payload jsonb)
returns jsonb language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select comms.get_send_payload('email', payload) $$;
comment on function comms.get_email_payload(jsonb) is
  'Before-handler of an e-mail: returns the message for the provider, or why it must not be sent.';

create or replace function comms.get_sms_payload(payload jsonb)
returns jsonb language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select comms.get_send_payload('sms', payload) $$;
comment on function comms.get_sms_payload(jsonb) is
  'Before-handler of a text message: returns the message for the provider, or why it must not be sent.';
