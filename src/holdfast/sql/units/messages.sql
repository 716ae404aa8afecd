-- Messages and business processes. Functions are in the folder.

-- section: schemas
-- Created by the login for the owner, like the others. It acts as the owner again afterwards.
do $$
begin
  if pg_catalog.to_regnamespace('comms') is null then
    perform pg_catalog.set_config('role', pg_catalog.current_setting('holdfast.login'), true);
    if not pg_catalog.has_database_privilege(current_user, pg_catalog.current_database(), 'create') then
      raise exception using message = pg_catalog.format(
        'The login %I may not create the schema comms. Have a DBA run this, then migrate again:', current_user)
        || pg_catalog.format(e'\n\n  grant create on database %I to %I;', pg_catalog.current_database(), current_user);
    end if;
    execute pg_catalog.format('create schema comms authorization %I', pg_catalog.current_setting('holdfast.owner'));
    perform pg_catalog.set_config('role', pg_catalog.current_setting('holdfast.owner'), true);
  end if;
end
$$;

comment on schema comms is 'Holdfast: e-mail and text messages, the first business process built on the engine.';

-- section: tables
-- Messages: what is to be sent, and what happened, for e-mail and SMS alike; then business processes. Rows of messages
-- are written once: triggers refuse changes, also by the owner. Only the address and content of a message can be
-- removed, with the fact of its erasure; all other tables contain ids, and no address or text.

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

-- section: functions
-- What core asks of messages and processes. A database without them has the functions of the same names below, which
-- find nothing. Two more are where they belong: prune_messages and call_error_handlers.
-- Invariant: core calls these functions, and names no other function and no table of this unit.
-- Lock order: none. Those that look only read, in the snapshot of the caller's statement.
-- At the same time: everything may change while they look; each answer describes one moment.

-- Checks business processes that are stuck: without a supervisor, or with one that fails. Counts up to 1,000 per
-- process and kind of problem.
-- Internal: called by health.
create or replace function queues.health_of_processes(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select t.code, queues.level_of(t.seconds, 0, case t.code when 'orphaned_process' then 60 else 600 end), t.process,
    t.seconds, t.code, jsonb_build_object('instances', t.instances, 'counted_to', 1000, 'process_id', t.process_id),
    left(t.message, 200)
  from (
    select case w.trouble when 'orphaned' then 'orphaned_process' else 'failing_supervisor' end as code, p.process,
      found.instances, found.process_id, extract(epoch from now - found.since)::double precision as seconds, (
        select e.message from queues.error e where e.task_id = found.task_id order by e.error_id desc
          limit 1) as message
    from queues.process p
    cross join (values ('orphaned'), ('failing')) w(trouble)
    cross join lateral (
      select count(*) as instances, min(i.troubled_at) as since,
        (array_agg(i.process_id order by i.troubled_at))[1] as process_id,
        (array_agg(i.task_id order by i.troubled_at))[1] as task_id
      from (
        select i.process_id, i.troubled_at, i.task_id from queues.process_instance i
        where i.process = p.process and i.trouble is not null and i.trouble = w.trouble limit 1000) i) found
    where found.instances > 0) t
  order by t.seconds desc limit 100;
end
$$;

-- Returns whether the mailbox has a message with this id.
-- Internal: called by record_reveal.
create or replace function queues.is_in_mailbox(mailbox_message_id bigint)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from comms.mailbox_message m where m.mailbox_message_id = is_in_mailbox.mailbox_message_id)
$$;

-- Returns the namespace of the instance of a process with this wait key, or null.
-- Internal: called by internal.run_function.
create or replace function queues.namespace_of_instance(wait_key uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select i.namespace from queues.process_instance i where i.wait_key = namespace_of_instance.wait_key $$;

-- Returns the instances of processes that a task names in its payload, as the functions of the process write it, with
-- their status. Anybody who enqueues may write anything there.
-- Internal: called by related_to.
create or replace function queues.processes_named(type text, payload jsonb)
returns table (process text, process_id bigint, status text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select i.process, i.process_id, i.status
  from queues.process p
  cross join lateral (
    select processes_named.payload ->> f.field as number
    from (values (p.root_table || '_id'), (regexp_replace(p.process, '^.*\.', '') || '_task_id')) f(field)
    where processes_named.payload ->> f.field ~ '^[0-9]{1,18}$' limit 1) f
  cross join lateral (
    select i.process, i.process_id, i.status from queues.process_status i
    where i.process = p.process and i.process_id = f.number::bigint offset 0) i
  where starts_with(processes_named.type, p.schema_name || '.')
$$;

-- section: views
-- What people read about messages, sends and business processes. The rows of one channel are for the owner: no role may
-- read them.

-- The facts of every send in order: the request, the supervisor's decisions, the attempts and their results. A client
-- sees its own.
create or replace view comms.send_event with (security_barrier) as
select t.channel, t.send_task_id as send_id, e.fact, e.occurred_at, e.attempt, e.reason, e.task_id
from comms.send_task t
cross join lateral (
  select 'asked' as fact, t.created_at as occurred_at, null::integer as attempt, null::text as reason,
    null::uuid as task_id
  union all
  select f.decision, f.supervised_at, null, f.reason, f.next_task_id
  from comms.send_task_supervised f where f.send_task_id = t.send_task_id
  union all
  select 'attempt_scheduled', f.scheduled_at, f.attempt, null, f.task_id
  from comms.send_task_scheduled f where f.send_task_id = t.send_task_id
  union all
  select 'attempt_failed', f.failed_at, f.attempt, f.kind || ': ' || f.message, null
  from comms.send_task_failed f where f.send_task_id = t.send_task_id
  union all
  select 'attempt_succeeded', f.succeeded_at, f.attempt, f.provider, null
  from comms.send_task_succeeded f where f.send_task_id = t.send_task_id
  union all
  select 'reported_' || f.report, f.reported_at, null, f.reason, null
  from comms.send_task_reported f where f.send_task_id = t.send_task_id) e
where (select queues.may_read_all()) or t.namespace = (select queues.namespace());

-- One logical send of one e-mail: the root of the process.
create or replace view comms.send_email_task with (security_barrier) as
select t.send_task_id as send_email_task_id, t.message_id, t.created_at, t.created_by, t.namespace, t.scheduled_at,
  t.max_attempts, t.retry_for, t.when_unknown, t.send_key
from comms.send_task t where t.channel = 'email';

-- The content of an e-mail, as it is passed to the provider.
create or replace view comms.email_message with (security_barrier) as
select c.message_id, c.channel, c.recipient, c.subject, c.text_body, c.html_body, c.sender, c.reply_to, c.headers
from comms.message_content c where c.channel = 'email';

-- A fact: the supervisor has scheduled this attempt.
create or replace view comms.send_email_task_scheduled with (security_barrier) as
select f.send_task_id as send_email_task_id, f.attempt, f.scheduled_at, f.run_at, f.task_id
from comms.send_task_scheduled f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

-- A fact: this attempt has failed.
create or replace view comms.send_email_task_failed with (security_barrier) as
select f.send_task_id as send_email_task_id, f.attempt, f.failed_at, f.kind, f.message, f.permanent,
  f.outcome_unknown, f.repeatable_until, f.retry_at, f.detail
from comms.send_task_failed f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

-- A fact: the provider has accepted the e-mail. At most one per send.
create or replace view comms.send_email_task_succeeded with (security_barrier) as
select f.send_task_id as send_email_task_id, f.attempt, f.succeeded_at, f.provider, f.provider_message_id, f.detail
from comms.send_task_succeeded f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

-- A fact: what the provider reported about the e-mail after accepting it.
create or replace view comms.send_email_task_reported with (security_barrier) as
select f.send_task_id as send_email_task_id, f.report, f.reported_at, f.reason
from comms.send_task_reported f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

-- A fact: what the supervisor decided in this run, and why. One run is the last.
create or replace view comms.send_email_task_supervised with (security_barrier) as
select f.send_task_id as send_email_task_id, f.run, f.supervised_at, f.decision, f.reason, f.next_run_at,
  f.next_task_id
from comms.send_task_supervised f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

-- One logical send of one text message: the root of the process.
create or replace view comms.send_sms_task with (security_barrier) as
select t.send_task_id as send_sms_task_id, t.message_id, t.created_at, t.created_by, t.namespace, t.scheduled_at,
  t.max_attempts, t.retry_for, t.when_unknown, t.send_key
from comms.send_task t where t.channel = 'sms';

-- The content of a text message, as it is passed to the provider.
create or replace view comms.sms_message with (security_barrier) as
select c.message_id, c.channel, c.recipient, c.text_body, c.sender
from comms.message_content c where c.channel = 'sms';

-- A fact: the supervisor has scheduled this attempt.
create or replace view comms.send_sms_task_scheduled with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.attempt, f.scheduled_at, f.run_at, f.task_id
from comms.send_task_scheduled f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

-- A fact: this attempt has failed.
create or replace view comms.send_sms_task_failed with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.attempt, f.failed_at, f.kind, f.message, f.permanent, f.outcome_unknown,
  f.repeatable_until, f.retry_at, f.detail
from comms.send_task_failed f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

-- A fact: the provider has accepted the text message. At most one per send.
create or replace view comms.send_sms_task_succeeded with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.attempt, f.succeeded_at, f.provider, f.provider_message_id, f.detail
from comms.send_task_succeeded f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

-- A fact: what the provider reported about the text message after accepting it.
create or replace view comms.send_sms_task_reported with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.report, f.reported_at, f.reason
from comms.send_task_reported f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

-- A fact: what the supervisor decided in this run, and why. One run is the last.
create or replace view comms.send_sms_task_supervised with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.run, f.supervised_at, f.decision, f.reason, f.next_run_at, f.next_task_id
from comms.send_task_supervised f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

-- The status of every send, derived from its facts. A client sees its own.
create or replace view comms.send_status with (security_barrier) as
select t.channel, t.send_task_id as send_id, t.message_id, m.recipient, m.subject,
  case when s.send_task_id is not null then 'succeeded'
    when last.next_task_id is null and last.run is not null then last.decision
    when last.decision in ('attempt', 'wait') then 'sending'
    else 'scheduled' end as status,
  case when last.run is null and t.scheduled_at > queues.clock() then 'it is to be sent at ' || t.scheduled_at
    else last.reason end as reason,
  coalesce(a.scheduled, 0) as attempts, coalesce(f.failures, 0) as failures, t.max_attempts, t.retry_for,
  t.when_unknown, s.provider, s.provider_message_id, t.scheduled_at, t.created_at, t.created_by, t.namespace,
  coalesce(last.run, 0) as runs,
  coalesce(last.next_run_at, case when last.run is null then t.scheduled_at end) as next_run_at, s.succeeded_at,
  s.send_task_id is null and coalesce(f.unknown, false) as outcome_unknown,
  d.report as delivery, d.reported_at as delivery_reported_at
from comms.send_task t
left join comms.message_content m on m.message_id = t.message_id
left join comms.send_task_succeeded s on s.send_task_id = t.send_task_id
left join lateral (
  select r.run, r.decision, r.reason, r.next_run_at, r.next_task_id from comms.send_task_supervised r
  where r.send_task_id = t.send_task_id order by r.run desc limit 1) last on true
left join lateral (
  select pg_catalog.count(*)::integer as scheduled from comms.send_task_scheduled a
  where a.send_task_id = t.send_task_id) a on true
left join lateral (
  select pg_catalog.count(*)::integer as failures, pg_catalog.bool_or(f.outcome_unknown) as unknown
  from comms.send_task_failed f where f.send_task_id = t.send_task_id) f on true
left join lateral (
  select r.report, r.reported_at from comms.send_task_reported r
  where r.send_task_id = t.send_task_id
  order by pg_catalog.array_position(array['complained', 'bounced', 'delivered'], r.report) limit 1) d on true
where (select queues.may_read_all()) or t.namespace = (select queues.namespace());

-- The status of every send of an e-mail, derived from its facts.
create or replace view comms.send_email_status with (security_barrier) as
select s.send_id as send_email_task_id, s.message_id, s.recipient, s.subject, s.status, s.reason,
  s.attempts, s.failures, s.max_attempts, s.retry_for, s.when_unknown, s.provider, s.provider_message_id,
  s.scheduled_at, s.created_at, s.created_by, s.namespace, s.runs, s.next_run_at, s.succeeded_at,
  s.outcome_unknown, s.delivery, s.delivery_reported_at
from comms.send_status s where s.channel = 'email';

-- The status of every send of a text message, derived from its facts.
create or replace view comms.send_sms_status with (security_barrier) as
select s.send_id as send_sms_task_id, s.message_id, s.recipient, s.status, s.reason, s.attempts, s.failures,
  s.max_attempts, s.retry_for, s.when_unknown, s.provider, s.provider_message_id, s.scheduled_at, s.created_at,
  s.created_by, s.namespace, s.runs, s.next_run_at, s.succeeded_at, s.outcome_unknown, s.delivery,
  s.delivery_reported_at
from comms.send_status s where s.channel = 'sms';

-- How much of each cap is used in the current period. Caps without a current count are not shown.
create or replace view comms.send_cap_status with (security_barrier) as
select c.channel, c.scope, c.period, k.subject, k.sent, c.most, k.ends_at
from comms.send_cap c
join comms.send_count k on k.channel = c.channel and k.scope = c.scope and k.period = c.period
  and k.ends_at > queues.clock();

-- The messages in the mailbox.
create or replace view comms.mailbox with (security_barrier) as
select m.mailbox_message_id, m.channel, m.recipient, m.sender, m.subject, m.text_body, m.html_body,
  m.reply_to, m.headers, m.idempotency_key, m.kept_at
from comms.mailbox_message m;

-- The status of every started business process, its next run, and what is wrong with it. A client sees those of its
-- namespace.
create or replace view queues.process_status with (security_barrier) as
select i.process, i.process_id, queues.process_status_of(i.decision, i.ended_at) as status, i.decision, i.reason,
  i.created_at, i.created_by, i.namespace, i.updated_at, i.next_run_at, i.task_id, i.awaited_task_id, i.trouble,
  i.troubled_at, i.repairs, i.repaired_at, i.ended_at, i.wait_key
from queues.process_instance i
where (select queues.may_read_all()) or i.namespace = (select queues.namespace());

-- The business processes of this database, and the functions that run, repair, end and read them.
create or replace view queues.registered_process with (security_barrier) as
select p.process, p.kind, p.schema_name, p.root_table, p.supervisor, p.repair, p.cancel, p.history, p.files,
  p.registered_at, p.registered_by, p.kickoff
from queues.process p;

-- section: grants
-- Messages and business processes.
grant usage on schema comms to
  holdfast_client, holdfast_process, holdfast_worker, holdfast_operator, holdfast_reader, holdfast_caller;
grant execute on function
  queues.nudge, queues.next_check, queues.register_process, queues.record_process_files, queues.note_supervision,
  queues.ending_of, queues.orphans, queues.is_supervised
to holdfast_process;
grant execute on function queues.find_orphans, queues.processes_to_repair to holdfast_worker;
grant execute on function queues.start_process to holdfast_client;
grant execute on function queues.nudge_process, queues.cancel_process to holdfast_client, holdfast_operator;
grant execute on function queues.process_history, queues.list_processes, queues.list_process_instances
to holdfast_reader;
grant execute on function queues.prune_processes to holdfast_worker, holdfast_operator;
grant execute on function queues.watch_processes, queues.process_status_of to holdfast_client, holdfast_reader;
grant select on queues.process_status, queues.registered_process to holdfast_client, holdfast_reader;

grant execute on function
  comms.create_email_message, comms.kickoff_send_email_task, comms.create_sms_message, comms.kickoff_send_sms_task
to holdfast_client;
grant execute on function comms.cancel_send_email_task, comms.cancel_send_sms_task to holdfast_client,
  holdfast_operator, holdfast_caller;
grant execute on function
  comms.send_email_supervisor, comms.get_email_payload, comms.record_email_success, comms.record_email_failure,
  comms.send_sms_supervisor, comms.get_sms_payload, comms.record_sms_success, comms.record_sms_failure,
  comms.repair_send_email, comms.repair_send_sms
to holdfast_caller;
grant execute on function comms.reserve_send, comms.keep_message to holdfast_worker;
grant execute on function comms.clear_mailbox, comms.erase_messages, comms.record_delivery to holdfast_operator;
grant select on comms.mailbox, comms.send_cap_status to holdfast_reader;
grant select on comms.send_status, comms.send_email_status, comms.send_sms_status to holdfast_client, holdfast_reader;
grant execute on function comms.send_email_history, comms.send_sms_history to holdfast_reader, holdfast_caller;
grant select on comms.send_event to holdfast_reader, holdfast_client;

-- section: registration
-- Holdfast's own processes, which must be granted before they can be registered.
do $$
declare
  _stem text;
begin
  foreach _stem in array array['send_email', 'send_sms'] loop
    perform queues.register_process('comms.' || _stem, 'send_task', pg_catalog.format('comms.%s_supervisor', _stem),
      'comms.repair_' || _stem, pg_catalog.format('comms.cancel_%s_task', _stem),
      pg_catalog.format('comms.%s_history', _stem));
  end loop;
end
$$;

-- section: functions if absent
-- What core calls in a database without messages and processes: functions with the names of those in the unit. They
-- find nothing and do nothing.
-- Invariant: their parameters and results are those of the unit, so that each takes the place of the other.
-- Lock order: none.
-- At the same time: nothing is read or written.

-- Does nothing: there are no error handlers, and no supervisors that wait.
-- Internal: called by sweep, finish and cancel.
create or replace function queues.call_error_handlers(
  task_ids uuid[], kind text, message text, permanent boolean, outcome_unknown boolean, now timestamptz)
returns void
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select $$;

-- Finds nothing: there are no processes.
-- Internal: called by health.
create or replace function queues.health_of_processes(now timestamptz)
returns setof queues.health_line
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::queues.health_line where false $$;

-- Returns false: there is no mailbox.
-- Internal: called by record_reveal.
create or replace function queues.is_in_mailbox(mailbox_message_id bigint)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select false $$;

-- Returns null: there are no processes.
-- Internal: called by internal.run_function.
create or replace function queues.namespace_of_instance(wait_key uuid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::text $$;

-- Finds nothing: there are no processes.
-- Internal: called by related_to.
create or replace function queues.processes_named(type text, payload jsonb)
returns table (process text, process_id bigint, status text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select null::text, null::bigint, null::text where false $$;

-- Removes nothing: there are no messages.
-- Internal: called by prune.
create or replace function queues.prune_messages(
  max_messages integer, past uuid, dry_run boolean, now timestamptz, out pruned integer, out examined integer,
  out next uuid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select 0, 0, null::uuid $$;
