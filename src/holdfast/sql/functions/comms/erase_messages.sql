-- Erases a recipient's messages, copies in the mailbox and cap counts, recording login and reason. Erases a limited
-- number of messages and returns how many; call it until it returns none. The facts of a send stay,
-- without the address and the text; a send that has not ended fails.
-- For holdfast_operator. Locks: the contents by message_id, then the rest.
create or replace function comms.erase_messages(recipient text, reason text, max_messages integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _durable constant text := queues.commit_to_disk();
  _messages bigint[];
  _copies integer;
begin
  if coalesce(recipient, '') = '' then
    raise exception using errcode = 'QF400', message = 'recipient must not be empty',
      hint = 'Give an e-mail address, or a number such as +4915112345678.';
  elsif coalesce(btrim(reason), '') = '' then
    raise exception using errcode = 'QF400', message = 'reason must not be empty',
      hint = 'It is recorded: give the reason, and do not repeat the address.';
  elsif max_messages is null or max_messages not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_messages must be between 1 and 10000';
  end if;
  _messages := array(
    select c.message_id from comms.message_content c where lower(c.recipient) = lower(erase_messages.recipient)
    order by c.message_id limit max_messages for update);
  delete from comms.mailbox_message m where m.mailbox_message_id in (
    select old.mailbox_message_id from comms.mailbox_message old
    where lower(old.recipient) = lower(erase_messages.recipient)
    order by old.mailbox_message_id limit max_messages for update);
  get diagnostics _copies = row_count;
  delete from comms.send_count k where k.scope = 'recipient' and k.subject = lower(erase_messages.recipient);
  return _copies + comms.remove_content(_messages, queues.actor(), left(reason, 2000), queues.clock());
end
$$;

comment on function comms.erase_messages(text, text, integer) is
  'Erases a recipient''s messages, copies in the mailbox and cap counts, recording login and reason.';
