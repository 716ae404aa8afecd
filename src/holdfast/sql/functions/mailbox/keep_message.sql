-- Stores a message in the mailbox instead of sending it, once per key, and returns its id there. Deletes the oldest
-- messages.
-- For holdfast_worker. Locks: the key.
create or replace function comms.keep_message(
  channel text,
  recipient text,
  idempotency_key text,
  sender text default null,
  subject text default null,
  text_body text default null,
  html_body text default null,
  reply_to text default null,
  headers jsonb default '{}')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _id bigint;
begin
  if channel is null or channel not in ('email', 'sms') then
    raise exception using errcode = 'QF400', message = format('channel %s is unknown', to_json(channel)),
      hint = 'Allowed: email, sms.';
  elsif recipient is null or idempotency_key is null then
    raise exception using errcode = 'QF400', message = 'recipient and idempotency_key must not be null';
  end if;
  insert into comms.mailbox_message
    (channel, idempotency_key, kept_at, recipient, sender, subject, text_body, html_body, reply_to, headers)
  values (keep_message.channel, keep_message.idempotency_key, queues.clock(), keep_message.recipient,
    keep_message.sender, keep_message.subject, keep_message.text_body, keep_message.html_body, keep_message.reply_to,
    coalesce(keep_message.headers, '{}'))
  on conflict (idempotency_key) do nothing
  returning mailbox_message_id into _id;
  if _id is null then
    return (select m.mailbox_message_id from comms.mailbox_message m
      where m.idempotency_key = keep_message.idempotency_key);
  end if;

  delete from comms.mailbox_message m where m.mailbox_message_id in (
    select old.mailbox_message_id from comms.mailbox_message old
    where old.mailbox_message_id <= (
      select newer.mailbox_message_id from comms.mailbox_message newer order by newer.mailbox_message_id desc
      offset (select s.value from queues.setting s where s.name = 'mailbox_messages') limit 1)
    order by old.mailbox_message_id limit 100 for update skip locked);
  return _id;
end
$$;

comment on function comms.keep_message(text, text, text, text, text, text, text, text, jsonb) is
  'Stores a message in the mailbox instead of sending it, once per key, and returns its id there.';
