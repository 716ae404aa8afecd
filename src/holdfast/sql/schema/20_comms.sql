-- E-mail and text messages: what is to be sent, and what happened. Rows are written once and never changed: a trigger
-- (functions/process/refuse_change.sql) refuses updates and deletes, even by functions of the owner. Only the address
-- and content of a message can be removed, with the fact of its erasure. All other tables contain ids, and no address
-- or text.

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

create table comms.email_message (
  message_id bigint constraint email_message_pkey primary key,
  channel text collate "C" not null default 'email' constraint is_email check (channel = 'email'),
  recipient text not null,
  subject text not null,
  text_body text,
  html_body text,
  sender text,
  reply_to text,
  headers jsonb not null default '{}' constraint headers_is_an_object check (jsonb_typeof(headers) = 'object'),
  constraint has_a_body check (text_body is not null or html_body is not null),
  constraint email_of_message foreign key (message_id, channel) references comms.message (message_id, channel)
);
create index emails_by_recipient on comms.email_message (lower(recipient));
comment on table comms.email_message is
  'The content of an e-mail, as it is passed to the provider. Never changed; removed by an erasure.';

create table comms.sms_message (
  message_id bigint constraint sms_message_pkey primary key,
  channel text collate "C" not null default 'sms' constraint is_sms check (channel = 'sms'),
  recipient text not null,
  text_body text not null,
  sender text,
  constraint sms_of_message foreign key (message_id, channel) references comms.message (message_id, channel)
);
create index sms_by_recipient on comms.sms_message (recipient);
comment on table comms.sms_message is
  'The content of a text message, as it is passed to the provider. Never changed; removed by an erasure.';

create table comms.message_erased (
  message_id bigint constraint one_erasure_per_message primary key constraint erased_message references comms.message,
  erased_at timestamptz not null,
  erased_by text collate "C" not null,
  reason text not null
);
comment on table comms.message_erased is 'A fact: the content of this message was removed. Append-only.';
comment on column comms.message_erased.erased_by is
  'The login that erased it, and for whom; retention if it was too old.';

create table comms.send_email_task (
  send_email_task_id bigint generated always as identity constraint send_email_task_pkey primary key,
  message_id bigint not null constraint email_to_send references comms.message,
  created_at timestamptz not null,
  created_by text collate "C" not null,
  namespace text collate "C" not null,
  scheduled_at timestamptz not null,
  max_attempts integer not null constraint email_attempts_within_bounds check (max_attempts between 1 and 20),
  retry_for interval not null constraint email_window_within_bounds check (retry_for between interval '0' and interval '31 days'),
  when_unknown text collate "C" not null constraint email_policy_is_known check (when_unknown in ('retry', 'stop')),
  send_key uuid not null constraint one_key_per_email unique
);
create index sends_of_email on comms.send_email_task (message_id);
create index emails_by_namespace on comms.send_email_task (namespace, send_email_task_id);
comment on table comms.send_email_task is 'One logical send of one e-mail: the root of the process. Append-only.';
comment on column comms.send_email_task.scheduled_at is 'The earliest time of the first attempt.';
comment on column comms.send_email_task.retry_for is
  'No attempt is scheduled for later than this after the first failure.';
comment on column comms.send_email_task.when_unknown is
  'After an attempt that may have been delivered: retry, or stop if another attempt could deliver it twice.';
comment on column comms.send_email_task.send_key is 'The idempotency key at the provider, the same for all attempts.';

create table comms.send_email_task_scheduled (
  send_email_task_id bigint not null constraint email_scheduled references comms.send_email_task,
  attempt integer not null constraint email_attempt_counts_from_one check (attempt >= 1),
  scheduled_at timestamptz not null,
  run_at timestamptz not null,
  task_id uuid not null constraint one_email_attempt_per_task unique,
  constraint one_email_of_each_attempt primary key (send_email_task_id, attempt)
);
comment on table comms.send_email_task_scheduled is 'A fact: the supervisor has scheduled this attempt. Append-only.';
comment on column comms.send_email_task_scheduled.task_id is 'The task that makes the attempt.';

create table comms.send_email_task_failed (
  send_email_task_id bigint not null,
  attempt integer not null,
  failed_at timestamptz not null,
  kind text not null,
  message text not null,
  permanent boolean not null,
  outcome_unknown boolean not null,
  repeatable_until timestamptz,
  retry_at timestamptz not null,
  detail jsonb,
  constraint one_failure_per_email_attempt primary key (send_email_task_id, attempt),
  constraint email_attempt_that_failed foreign key (send_email_task_id, attempt)
    references comms.send_email_task_scheduled (send_email_task_id, attempt)
);
comment on table comms.send_email_task_failed is 'A fact: this attempt has failed. Append-only.';
comment on column comms.send_email_task_failed.permanent is 'Another attempt would fail as well.';
comment on column comms.send_email_task_failed.outcome_unknown is 'The provider may have sent it.';
comment on column comms.send_email_task_failed.repeatable_until is
  'Until then the provider recognizes the idempotency key, and another attempt cannot deliver twice; null without keys.';
comment on column comms.send_email_task_failed.retry_at is
  'The earliest time of the next attempt: the back-off with its jitter, or the pause that the provider requested.';

create table comms.send_email_task_succeeded (
  send_email_task_id bigint constraint one_success_per_email primary key,
  attempt integer not null,
  succeeded_at timestamptz not null,
  provider text,
  provider_message_id text,
  detail jsonb,
  constraint email_attempt_that_succeeded foreign key (send_email_task_id, attempt)
    references comms.send_email_task_scheduled (send_email_task_id, attempt)
);
create index email_by_provider_message on comms.send_email_task_succeeded (provider_message_id);
comment on table comms.send_email_task_succeeded is
  'A fact: the provider has accepted the e-mail. At most one per send. Append-only.';

create table comms.send_email_task_reported (
  send_email_task_id bigint not null constraint email_reported references comms.send_email_task_succeeded,
  report text collate "C" not null constraint known_email_report check (report in ('delivered', 'bounced', 'complained')),
  reported_at timestamptz not null,
  reason text,
  constraint one_email_report_of_each_kind primary key (send_email_task_id, report)
);
comment on table comms.send_email_task_reported is
  'A fact: what the provider reported about the e-mail after accepting it. Append-only.';
comment on column comms.send_email_task_reported.reported_at is 'When the first report of this kind arrived.';

create table comms.send_email_task_supervised (
  send_email_task_id bigint not null constraint email_supervised references comms.send_email_task,
  run integer not null constraint email_run_counts_from_one check (run >= 1),
  supervised_at timestamptz not null,
  decision text collate "C" not null constraint known_email_decision check (
    decision in ('sleep', 'attempt', 'wait', 'succeeded', 'failed', 'gave_up', 'cancelled')),
  reason text not null,
  next_run_at timestamptz,
  next_task_id uuid,
  constraint one_decision_per_email_run primary key (send_email_task_id, run),
  constraint email_goes_on_or_ends check (
    (next_task_id is null) = (decision in ('succeeded', 'failed', 'gave_up', 'cancelled')) and (next_run_at is null) = (next_task_id is null))
);
create unique index one_end_per_email on comms.send_email_task_supervised (send_email_task_id) where next_task_id is null;
comment on table comms.send_email_task_supervised is
  'A fact: what the supervisor decided in this run, and why. One run is the last. Append-only.';
comment on column comms.send_email_task_supervised.next_task_id is
  'The task that is the next run; null in the last run.';

create table comms.send_sms_task (
  send_sms_task_id bigint generated always as identity constraint send_sms_task_pkey primary key,
  message_id bigint not null constraint sms_to_send references comms.message,
  created_at timestamptz not null,
  created_by text collate "C" not null,
  namespace text collate "C" not null,
  scheduled_at timestamptz not null,
  max_attempts integer not null constraint sms_attempts_within_bounds check (max_attempts between 1 and 20),
  retry_for interval not null constraint sms_window_within_bounds check (retry_for between interval '0' and interval '31 days'),
  when_unknown text collate "C" not null constraint sms_policy_is_known check (when_unknown in ('retry', 'stop')),
  send_key uuid not null constraint one_key_per_sms unique
);
create index sends_of_sms on comms.send_sms_task (message_id);
create index sms_by_namespace on comms.send_sms_task (namespace, send_sms_task_id);
comment on table comms.send_sms_task is 'One logical send of one text message: the root of the process. Append-only.';
comment on column comms.send_sms_task.scheduled_at is 'The earliest time of the first attempt.';
comment on column comms.send_sms_task.retry_for is
  'No attempt is scheduled for later than this after the first failure.';
comment on column comms.send_sms_task.when_unknown is
  'After an attempt that may have been delivered: retry, or stop if another attempt could deliver it twice.';
comment on column comms.send_sms_task.send_key is 'The idempotency key at the provider, the same for all attempts.';

create table comms.send_sms_task_scheduled (
  send_sms_task_id bigint not null constraint sms_scheduled references comms.send_sms_task,
  attempt integer not null constraint sms_attempt_counts_from_one check (attempt >= 1),
  scheduled_at timestamptz not null,
  run_at timestamptz not null,
  task_id uuid not null constraint one_sms_attempt_per_task unique,
  constraint one_sms_of_each_attempt primary key (send_sms_task_id, attempt)
);
comment on table comms.send_sms_task_scheduled is 'A fact: the supervisor has scheduled this attempt. Append-only.';
comment on column comms.send_sms_task_scheduled.task_id is 'The task that makes the attempt.';

create table comms.send_sms_task_failed (
  send_sms_task_id bigint not null,
  attempt integer not null,
  failed_at timestamptz not null,
  kind text not null,
  message text not null,
  permanent boolean not null,
  outcome_unknown boolean not null,
  repeatable_until timestamptz,
  retry_at timestamptz not null,
  detail jsonb,
  constraint one_failure_per_sms_attempt primary key (send_sms_task_id, attempt),
  constraint sms_attempt_that_failed foreign key (send_sms_task_id, attempt)
    references comms.send_sms_task_scheduled (send_sms_task_id, attempt)
);
comment on table comms.send_sms_task_failed is 'A fact: this attempt has failed. Append-only.';
comment on column comms.send_sms_task_failed.permanent is 'Another attempt would fail as well.';
comment on column comms.send_sms_task_failed.outcome_unknown is 'The provider may have sent it.';
comment on column comms.send_sms_task_failed.repeatable_until is
  'Until then the provider recognizes the idempotency key, and another attempt cannot deliver twice; null without keys.';
comment on column comms.send_sms_task_failed.retry_at is
  'The earliest time of the next attempt: the back-off with its jitter, or the pause that the provider requested.';

create table comms.send_sms_task_succeeded (
  send_sms_task_id bigint constraint one_success_per_sms primary key,
  attempt integer not null,
  succeeded_at timestamptz not null,
  provider text,
  provider_message_id text,
  detail jsonb,
  constraint sms_attempt_that_succeeded foreign key (send_sms_task_id, attempt)
    references comms.send_sms_task_scheduled (send_sms_task_id, attempt)
);
create index sms_by_provider_message on comms.send_sms_task_succeeded (provider_message_id);
comment on table comms.send_sms_task_succeeded is
  'A fact: the provider has accepted the text message. At most one per send. Append-only.';

create table comms.send_sms_task_reported (
  send_sms_task_id bigint not null constraint sms_reported references comms.send_sms_task_succeeded,
  report text collate "C" not null constraint known_sms_report check (report in ('delivered', 'bounced', 'complained')),
  reported_at timestamptz not null,
  reason text,
  constraint one_sms_report_of_each_kind primary key (send_sms_task_id, report)
);
comment on table comms.send_sms_task_reported is
  'A fact: what the provider reported about the text message after accepting it. Append-only.';
comment on column comms.send_sms_task_reported.reported_at is 'When the first report of this kind arrived.';

create table comms.send_sms_task_supervised (
  send_sms_task_id bigint not null constraint sms_supervised references comms.send_sms_task,
  run integer not null constraint sms_run_counts_from_one check (run >= 1),
  supervised_at timestamptz not null,
  decision text collate "C" not null constraint known_sms_decision check (
    decision in ('sleep', 'attempt', 'wait', 'succeeded', 'failed', 'gave_up', 'cancelled')),
  reason text not null,
  next_run_at timestamptz,
  next_task_id uuid,
  constraint one_decision_per_sms_run primary key (send_sms_task_id, run),
  constraint sms_goes_on_or_ends check (
    (next_task_id is null) = (decision in ('succeeded', 'failed', 'gave_up', 'cancelled')) and (next_run_at is null) = (next_task_id is null))
);
create unique index one_end_per_sms on comms.send_sms_task_supervised (send_sms_task_id) where next_task_id is null;
comment on table comms.send_sms_task_supervised is
  'A fact: what the supervisor decided in this run, and why. One run is the last. Append-only.';
comment on column comms.send_sms_task_supervised.next_task_id is 'The task that is the next run; null in the last run.';
