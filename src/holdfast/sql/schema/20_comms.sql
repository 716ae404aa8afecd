-- Messages: what is to be sent, and what happened, for e-mail and SMS alike. Rows are written once and never changed: a
-- trigger (functions/process/refuse_change.sql) refuses updates and deletes, even by functions of the owner. Only the
-- address and content of a message can be removed, with the fact of its erasure. All other tables contain ids, and no
-- address or text. views/send_email_task.sql and views/send_sms_task.sql show the rows of one channel.

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
