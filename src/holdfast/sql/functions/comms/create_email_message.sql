-- Stores an e-mail in the caller's transaction and returns its id; comms.kickoff_send_email_task sends it. Every part
-- is limited, so that one message takes at most about a mebibyte to store and to load.
-- For holdfast_client and holdfast_process. Locks: nothing.
create or replace function comms.create_email_message(
  recipient text,
  subject text,
  text_body text default null,
  html_body text default null,
  sender text default null,
  reply_to text default null,
  headers jsonb default '{}')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _most_bytes constant integer := 1048576;
  _most_headers constant integer := 50;
  _most_header_bytes constant integer := 32768;
  _id bigint;
begin
  perform comms.check_address('recipient', coalesce(recipient, ''));
  perform comms.check_line('subject', coalesce(subject, ''), 2000);
  perform comms.check_line('sender', sender, 1000);
  perform comms.check_line('reply_to', reply_to, 1000);
  if char_length(subject) > 500 then
    raise exception using errcode = 'QF413',
      message = format('subject has %s characters; at most 500 are allowed', char_length(subject));
  elsif text_body is null and html_body is null then
    raise exception using errcode = 'QF400', message = 'an e-mail needs a text_body, an html_body or both';
  elsif coalesce(octet_length(text_body), 0) + coalesce(octet_length(html_body), 0) > _most_bytes then
    raise exception using errcode = 'QF413',
      message = format('text_body and html_body may have at most %s bytes together', _most_bytes);
  elsif jsonb_typeof(headers) is distinct from 'object' then
    raise exception using errcode = 'QF400', message = 'headers must be an object';
  elsif octet_length(headers::text) > _most_header_bytes then
    raise exception using errcode = 'QF413',
      message = format('headers may have at most %s bytes in total', _most_header_bytes);
  elsif (select count(*) from jsonb_object_keys(headers)) > _most_headers then
    raise exception using errcode = 'QF413', message = format('headers may have at most %s fields', _most_headers);
  end if;
  perform comms.check_header(h.name, h.value) from jsonb_each(headers) h(name, value);

  insert into comms.message (channel, created_at, created_by, namespace)
  values ('email', queues.clock(), session_user, queues.namespace())
  returning message_id into _id;
  insert into comms.message_content (
    message_id, channel, recipient, subject, text_body, html_body, sender, reply_to, headers)
  values (_id, 'email', recipient, subject, text_body, html_body, sender, reply_to, headers);
  return _id;
end
$$;

comment on function comms.create_email_message(text, text, text, text, text, text, jsonb) is
  'Stores an e-mail in the caller''s transaction and returns its id; comms.kickoff_send_email_task sends it.';
