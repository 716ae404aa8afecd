-- Stores a text message in the caller's transaction and returns its id; comms.kickoff_send_sms_task sends it.
-- For holdfast_client and holdfast_process. Locks: nothing.
create or replace function comms.create_sms_message(recipient text, text_body text, sender text default null)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _most_characters constant integer := 1600;
  _id bigint;
begin
  if recipient is null or recipient !~ '^\+[1-9][0-9]{6,14}$' then
    raise exception using errcode = 'QF400', message = format(
        'recipient %s is not a number in E.164 form', coalesce(to_json(left(recipient, 100))::text, 'null')),
      hint = 'Write it as +4915112345678.';
  elsif text_body is null or text_body = '' then
    raise exception using errcode = 'QF400', message = 'a text message needs a text_body';
  elsif char_length(text_body) > _most_characters then
    raise exception using errcode = 'QF413',
      message = format('a text message may have at most %s characters', _most_characters);
  end if;
  perform comms.check_line('sender', sender, 100);

  insert into comms.message (channel, created_at, created_by, namespace)
  values ('sms', queues.clock(), session_user, queues.namespace())
  returning message_id into _id;
  insert into comms.message_content (message_id, channel, recipient, text_body, sender)
  values (_id, 'sms', recipient, text_body, sender);
  return _id;
end
$$;

comment on function comms.create_sms_message(text, text, text) is
  'Stores a text message in the caller''s transaction and returns its id; comms.kickoff_send_sms_task sends it.';
