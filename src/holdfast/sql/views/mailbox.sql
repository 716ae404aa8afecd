-- The messages in the mailbox.
create or replace view comms.mailbox with (security_barrier) as
select m.mailbox_message_id, m.channel, m.recipient, m.sender, m.subject, m.text_body, m.html_body,
  m.reply_to, m.headers, m.idempotency_key, m.kept_at
from comms.mailbox_message m;

comment on view comms.mailbox is 'The messages in the mailbox.';
