-- Caps, and the messages in the mailbox. Unlike the facts of a send, these rows are updated and removed.

create table comms.send_cap (
  channel text collate "C" not null constraint cap_of_known_channel check (channel in ('email', 'sms')),
  scope text collate "C" not null constraint known_scope check (scope in ('recipient', 'country', 'all')),
  period interval not null constraint period_within_bounds check (
    period between interval '1 minute' and interval '31 days'),
  most integer not null constraint most_is_not_negative check (most >= 0),
  constraint send_cap_pkey primary key (channel, scope, period),
  constraint only_texts_have_a_country check (channel = 'sms' or scope <> 'country')
);
comment on table comms.send_cap is
  'How many messages may be sent to one recipient, to one country or in total, per period. The owner may change it.';
insert into comms.send_cap (channel, scope, period, most) values
  ('email', 'recipient', '1 hour', 20),
  ('email', 'recipient', '1 day', 100),
  ('email', 'all', '1 day', 10000),
  ('sms', 'recipient', '1 hour', 5),
  ('sms', 'recipient', '1 day', 20),
  ('sms', 'country', '1 day', 500),
  ('sms', 'all', '1 day', 1000);

create table comms.send_count (
  channel text collate "C" not null,
  scope text collate "C" not null,
  period interval not null,
  subject text collate "C" not null,
  sent integer not null,
  ends_at timestamptz not null,
  constraint send_count_pkey primary key (channel, scope, period, subject)
) with (fillfactor = 50);
create index send_count_to_remove on comms.send_count (ends_at);
comment on table comms.send_count is
  'How many messages were sent to one recipient, to one country or in total, in the current period.';
comment on column comms.send_count.subject is 'The recipient or the country; empty for the total.';
comment on column comms.send_count.ends_at is 'The end of the period, which began with its first message.';

create table comms.send_reservation (
  idempotency_key text collate "C" constraint send_reservation_pkey primary key,
  reserved_at timestamptz not null
);
create index send_reservation_to_remove on comms.send_reservation (reserved_at);
comment on table comms.send_reservation is
  'Messages that are already counted: sending one again with its key does not count. Kept for two days.';

create table comms.mailbox_message (
  mailbox_message_id bigint generated always as identity constraint mailbox_message_pkey primary key,
  channel text collate "C" not null constraint kept_from_known_channel check (channel in ('email', 'sms')),
  idempotency_key text collate "C" not null constraint kept_once unique,
  kept_at timestamptz not null,
  recipient text not null,
  sender text,
  subject text,
  text_body text,
  html_body text,
  reply_to text,
  headers jsonb not null default '{}'
);
comment on table comms.mailbox_message is
  'The messages in the mailbox. The newest are kept, up to the setting mailbox_messages.';

insert into queues.setting (name, value, description) values
  ('mailbox_messages', 1000, 'number of messages that the mailbox keeps');
