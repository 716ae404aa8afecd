-- Messages: what is to be sent, and what happened, for e-mail and SMS alike; then business processes. Rows of messages
-- are written once: triggers refuse changes, also by the owner. Only the address and content of a message can be
-- removed, with the fact of its erasure; all other tables contain ids, and no address or text. views/messages.sql
-- shows the rows of one channel.

create table comms.message (
  message_id bigint generated always as identity constraint message_pkey primary key,
  channel text collate "C" not null constraint known_channel check (channel in ('email', 'sms')),
  created_at timestamptz not null,
  created_by text collate "C" not null,
  namespace text collate "C" not null,
  constraint message_has_one_channel unique (message_id, channel)
);
comment on table comms.message is 'A message of any channel. Append-only.';
comment on column comms.message.created_by is 'The login (session_user) that created it.';
comment on column comms.message.namespace is 'The namespace that owns the message.';

create table comms.message_content (
  message_id bigint constraint message_content_pkey primary key,
  channel text collate "C" not null,
  recipient text not null,
  subject text,
  text_body text,
  html_body text,
  sender text,
  reply_to text,
  headers jsonb not null default '{}' constraint headers_is_an_object check (jsonb_typeof(headers) = 'object'),
  constraint has_a_body check (text_body is not null or html_body is not null),
  constraint email_has_a_subject check (channel <> 'email' or subject is not null),
  constraint sms_is_text_only check (
    channel <> 'sms' or text_body is not null and num_nonnulls(subject, html_body, reply_to) = 0 and headers = '{}'),
  constraint content_of_message foreign key (message_id, channel) references comms.message (message_id, channel)
);
create index content_by_recipient on comms.message_content (lower(recipient));
comment on table comms.message_content is
  'The address and content of a message, as they are passed to the provider. Never changed; removed by an erasure.';

create table comms.message_erased (
  message_id bigint constraint one_erasure_per_message primary key constraint erased_message references comms.message,
  erased_at timestamptz not null,
  erased_by text collate "C" not null,
  reason text not null
);
comment on table comms.message_erased is 'A fact: the content of this message was removed. Append-only.';
comment on column comms.message_erased.erased_by is
  'The login that erased it, and for whom; retention if it was too old.';

create table comms.send_task (
  send_task_id bigint generated always as identity constraint send_task_pkey primary key,
  channel text collate "C" not null,
  message_id bigint not null,
  created_at timestamptz not null,
  created_by text collate "C" not null,
  namespace text collate "C" not null,
  scheduled_at timestamptz not null,
  max_attempts integer not null constraint attempts_within_bounds check (max_attempts between 1 and 20),
  retry_for interval not null constraint window_within_bounds check (
    retry_for between interval '0' and interval '31 days'),
  when_unknown text collate "C" not null constraint policy_is_known check (when_unknown in ('retry', 'stop')),
  send_key uuid not null constraint one_key_per_send unique,
  constraint message_to_send foreign key (message_id, channel) references comms.message (message_id, channel)
);
create index sends_of_message on comms.send_task (message_id);
create index sends_by_channel on comms.send_task (channel, send_task_id);
create index sends_by_namespace on comms.send_task (namespace, send_task_id);
comment on table comms.send_task is 'One logical send of one message: the root of the process. Append-only.';
comment on column comms.send_task.scheduled_at is 'The earliest time of the first attempt.';
comment on column comms.send_task.retry_for is 'No attempt is scheduled for later than this after the first failure.';
comment on column comms.send_task.when_unknown is
  'After an attempt that may have been delivered: retry, or stop if another attempt could deliver it twice.';
comment on column comms.send_task.send_key is 'The idempotency key at the provider, the same for all attempts.';

create table comms.send_task_scheduled (
  send_task_id bigint not null constraint send_scheduled references comms.send_task,
  attempt integer not null constraint attempt_counts_from_one check (attempt >= 1),
  scheduled_at timestamptz not null,
  run_at timestamptz not null,
  task_id uuid not null constraint one_attempt_per_task unique,
  constraint one_send_of_each_attempt primary key (send_task_id, attempt)
);
comment on table comms.send_task_scheduled is 'A fact: the supervisor has scheduled this attempt. Append-only.';
comment on column comms.send_task_scheduled.task_id is 'The task that makes the attempt.';

create table comms.send_task_failed (
  send_task_id bigint not null,
  attempt integer not null,
  failed_at timestamptz not null,
  kind text not null,
  message text not null,
  permanent boolean not null,
  outcome_unknown boolean not null,
  repeatable_until timestamptz,
  retry_at timestamptz not null,
  detail jsonb,
  constraint one_failure_per_attempt primary key (send_task_id, attempt),
  constraint attempt_that_failed foreign key (send_task_id, attempt)
    references comms.send_task_scheduled (send_task_id, attempt)
);
comment on table comms.send_task_failed is 'A fact: this attempt has failed. Append-only.';
comment on column comms.send_task_failed.permanent is 'Another attempt would fail as well.';
comment on column comms.send_task_failed.outcome_unknown is 'The provider may have sent it.';
comment on column comms.send_task_failed.repeatable_until is
  'Until then the provider recognizes the idempotency key, and another attempt cannot deliver twice; null '
    'without keys.';
comment on column comms.send_task_failed.retry_at is
  'The earliest time of the next attempt: the back-off with its jitter, or the pause that the provider requested.';

create table comms.send_task_succeeded (
  send_task_id bigint constraint one_success_per_send primary key,
  attempt integer not null,
  succeeded_at timestamptz not null,
  provider text,
  provider_message_id text,
  detail jsonb,
  constraint attempt_that_succeeded foreign key (send_task_id, attempt)
    references comms.send_task_scheduled (send_task_id, attempt)
);
create index send_by_provider_message on comms.send_task_succeeded (provider_message_id);
comment on table comms.send_task_succeeded is
  'A fact: the provider has accepted the message. At most one per send. Append-only.';

create table comms.send_task_reported (
  send_task_id bigint not null constraint send_reported references comms.send_task_succeeded,
  report text collate "C" not null constraint known_report check (report in ('delivered', 'bounced', 'complained')),
  reported_at timestamptz not null,
  reason text,
  constraint one_report_of_each_kind primary key (send_task_id, report)
);
comment on table comms.send_task_reported is
  'A fact: what the provider reported about the message after accepting it. Append-only.';
comment on column comms.send_task_reported.reported_at is 'When the first report of this kind arrived.';

create table comms.send_task_supervised (
  send_task_id bigint not null constraint send_supervised references comms.send_task,
  run integer not null constraint run_counts_from_one check (run >= 1),
  supervised_at timestamptz not null,
  decision text collate "C" not null constraint known_decision check (
    decision in ('sleep', 'attempt', 'wait', 'succeeded', 'failed', 'gave_up', 'cancelled')),
  reason text not null,
  next_run_at timestamptz,
  next_task_id uuid,
  constraint one_decision_per_run primary key (send_task_id, run),
  constraint send_goes_on_or_ends check (
    (next_task_id is null) = (decision in ('succeeded', 'failed', 'gave_up', 'cancelled'))
    and (next_run_at is null) = (next_task_id is null))
);
create unique index one_end_per_send on comms.send_task_supervised (send_task_id) where next_task_id is null;
comment on table comms.send_task_supervised is
  'A fact: what the supervisor decided in this run, and why. One run is the last. Append-only.';
comment on column comms.send_task_supervised.next_task_id is 'The task that is the next run; null in the last run.';

create type comms.send_facts as (
  has_ended boolean,
  has_succeeded boolean,
  runs integer,
  waits integer,
  next_task_id uuid,
  scheduled integer,
  first_scheduled_at timestamptz,
  last_attempt_at timestamptz,
  failures integer,
  first_failed_at timestamptz,
  failed_for_good boolean,
  last_error text,
  retry_at timestamptz,
  may_be_delivered boolean,
  repeatable_until timestamptz,
  provider text
);
comment on type comms.send_facts is 'What is known about a send, as comms.read_facts returns it.';
comment on column comms.send_facts.waits is 'How many runs of the supervisor have waited for the last attempt.';
comment on column comms.send_facts.next_task_id is 'The task that is the next run of the supervisor.';
comment on column comms.send_facts.retry_at is 'The earliest time of the next attempt.';
comment on column comms.send_facts.may_be_delivered is 'The outcome of a failed attempt is unknown.';
comment on column comms.send_facts.repeatable_until is
  'Until when another attempt cannot deliver twice; null if it could at once.';
comment on column comms.send_facts.provider is 'The provider of the attempt whose outcome is unknown.';

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

insert into queues.executor (executor, needs_process, description) values
  ('email', true, 'an e-mail, between its before, success and error handlers'),
  ('sms', true, 'a text message, between its before, success and error handlers');
insert into queues.retention (status, type_prefix, keep) values ('messages', '', '90 days')
on conflict (status, type_prefix) do nothing;
insert into queues.retention_mark (status, past, full_pass_at) values
  ('messages', '00000000-0000-0000-0000-000000000000', '-infinity')
on conflict (status) do nothing;
insert into queues.setting (name, value, description) values
  ('mailbox_messages', 1000, 'number of messages that the mailbox keeps');

-- Business processes and their instances. The facts of a process are in its own schema; these rows record which task
-- runs its supervisor next, so that a process without one is found, and clients that wait for its end are notified.
create table queues.process (
  process text collate "C" constraint process_pkey primary key,
  kind text collate "C" not null constraint known_kind check (kind in ('attempts', 'decision', 'python')),
  schema_name text collate "C" not null,
  root_table text collate "C" not null,
  supervisor text collate "C" not null constraint one_process_per_supervisor unique,
  repair text collate "C" not null,
  cancel text collate "C" not null,
  history text collate "C" not null,
  files jsonb not null default '{}',
  registered_at timestamptz not null,
  registered_by text collate "C" not null,
  kickoff text collate "C"
);
comment on table queues.process is
  'The business processes of this database, with the functions that run, repair, end and read them.';
comment on column queues.process.supervisor is
  'The function that is the supervisor. If kind is python, the type of the tasks that are.';
comment on column queues.process.kickoff is
  'The function that starts an instance with one document as its input; null if there is none of that form.';
comment on column queues.process.files is 'The digest of each file that holdfast process apply last applied.';

create table queues.process_instance (
  process text collate "C" not null,
  process_id bigint not null,
  wait_key uuid not null generated always as (
    md5(process || ' ' || process_id::text)::uuid) stored constraint one_instance_per_wait_key unique,
  created_at timestamptz not null,
  created_by text collate "C" not null,
  namespace text collate "C" not null,
  updated_at timestamptz not null,
  decision text collate "C",
  reason text,
  next_run_at timestamptz,
  task_id uuid,
  awaited_task_id uuid,
  repairs integer not null default 0,
  repaired_at timestamptz,
  trouble text collate "C" constraint known_trouble check (trouble in ('orphaned', 'failing')),
  troubled_at timestamptz,
  ended_at timestamptz,
  constraint process_instance_pkey primary key (process, process_id),
  constraint supervised_or_ended check ((task_id is null) = (ended_at is not null)),
  constraint ended_by_a_decision check (ended_at is null or decision is not null),
  constraint troubled_since check ((trouble is null) = (troubled_at is null))
);
create index process_to_supervise on queues.process_instance (process, process_id) where ended_at is null;
create index process_in_trouble on queues.process_instance (process, process_id) where trouble is not null;
create index process_that_awaits on queues.process_instance (awaited_task_id) where awaited_task_id is not null;
create index process_to_prune on queues.process_instance (ended_at) where ended_at is not null;
comment on table queues.process_instance is
  'The state of each started business process: its next supervisor task, or its end.';
comment on column queues.process_instance.wait_key is
  'Identifies the process in queues.waiter and in notifications, like the task_id of a task.';
comment on column queues.process_instance.awaited_task_id is 'The task whose end the supervisor waits for, if any.';
comment on column queues.process_instance.repairs is 'How often its supervisor was enqueued again since it last ran.';
