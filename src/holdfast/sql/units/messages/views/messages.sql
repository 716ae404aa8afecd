-- What people read about messages, sends and business processes. The views of one channel show the tables under the
-- names of that channel, for the owner.

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

comment on view comms.send_event is
  'The facts of every send in order: the request, the supervisor''s decisions, the attempts and their results.';

-- The rows of an e-mail in the tables of schema/messages.sql. For the owner: no role may read them.
create or replace view comms.send_email_task with (security_barrier) as
select t.send_task_id as send_email_task_id, t.message_id, t.created_at, t.created_by, t.namespace, t.scheduled_at,
  t.max_attempts, t.retry_for, t.when_unknown, t.send_key
from comms.send_task t where t.channel = 'email';

comment on view comms.send_email_task is 'One logical send of one e-mail: the root of the process.';

create or replace view comms.email_message with (security_barrier) as
select c.message_id, c.channel, c.recipient, c.subject, c.text_body, c.html_body, c.sender, c.reply_to, c.headers
from comms.message_content c where c.channel = 'email';

comment on view comms.email_message is 'The content of an e-mail, as it is passed to the provider.';

create or replace view comms.send_email_task_scheduled with (security_barrier) as
select f.send_task_id as send_email_task_id, f.attempt, f.scheduled_at, f.run_at, f.task_id
from comms.send_task_scheduled f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

comment on view comms.send_email_task_scheduled is
  'A fact: the supervisor has scheduled this attempt.';

create or replace view comms.send_email_task_failed with (security_barrier) as
select f.send_task_id as send_email_task_id, f.attempt, f.failed_at, f.kind, f.message, f.permanent,
  f.outcome_unknown, f.repeatable_until, f.retry_at, f.detail
from comms.send_task_failed f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

comment on view comms.send_email_task_failed is
  'A fact: this attempt has failed.';

create or replace view comms.send_email_task_succeeded with (security_barrier) as
select f.send_task_id as send_email_task_id, f.attempt, f.succeeded_at, f.provider, f.provider_message_id, f.detail
from comms.send_task_succeeded f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

comment on view comms.send_email_task_succeeded is
  'A fact: the provider has accepted the e-mail. At most one per send.';

create or replace view comms.send_email_task_reported with (security_barrier) as
select f.send_task_id as send_email_task_id, f.report, f.reported_at, f.reason
from comms.send_task_reported f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

comment on view comms.send_email_task_reported is
  'A fact: what the provider reported about the e-mail after accepting it.';

create or replace view comms.send_email_task_supervised with (security_barrier) as
select f.send_task_id as send_email_task_id, f.run, f.supervised_at, f.decision, f.reason, f.next_run_at,
  f.next_task_id
from comms.send_task_supervised f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'email';

comment on view comms.send_email_task_supervised is
  'A fact: what the supervisor decided in this run, and why. One run is the last.';

-- The rows of a text message in the tables of schema/messages.sql. For the owner: no role may read them.
create or replace view comms.send_sms_task with (security_barrier) as
select t.send_task_id as send_sms_task_id, t.message_id, t.created_at, t.created_by, t.namespace, t.scheduled_at,
  t.max_attempts, t.retry_for, t.when_unknown, t.send_key
from comms.send_task t where t.channel = 'sms';

comment on view comms.send_sms_task is 'One logical send of one text message: the root of the process.';

create or replace view comms.sms_message with (security_barrier) as
select c.message_id, c.channel, c.recipient, c.text_body, c.sender
from comms.message_content c where c.channel = 'sms';

comment on view comms.sms_message is 'The content of a text message, as it is passed to the provider.';

create or replace view comms.send_sms_task_scheduled with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.attempt, f.scheduled_at, f.run_at, f.task_id
from comms.send_task_scheduled f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

comment on view comms.send_sms_task_scheduled is
  'A fact: the supervisor has scheduled this attempt.';

create or replace view comms.send_sms_task_failed with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.attempt, f.failed_at, f.kind, f.message, f.permanent, f.outcome_unknown,
  f.repeatable_until, f.retry_at, f.detail
from comms.send_task_failed f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

comment on view comms.send_sms_task_failed is
  'A fact: this attempt has failed.';

create or replace view comms.send_sms_task_succeeded with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.attempt, f.succeeded_at, f.provider, f.provider_message_id, f.detail
from comms.send_task_succeeded f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

comment on view comms.send_sms_task_succeeded is
  'A fact: the provider has accepted the text message. At most one per send.';

create or replace view comms.send_sms_task_reported with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.report, f.reported_at, f.reason
from comms.send_task_reported f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

comment on view comms.send_sms_task_reported is
  'A fact: what the provider reported about the text message after accepting it.';

create or replace view comms.send_sms_task_supervised with (security_barrier) as
select f.send_task_id as send_sms_task_id, f.run, f.supervised_at, f.decision, f.reason, f.next_run_at, f.next_task_id
from comms.send_task_supervised f join comms.send_task t on t.send_task_id = f.send_task_id and t.channel = 'sms';

comment on view comms.send_sms_task_supervised is
  'A fact: what the supervisor decided in this run, and why. One run is the last.';

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

comment on view comms.send_status is 'The status of every send, derived from its facts.';

create or replace view comms.send_email_status with (security_barrier) as
select s.send_id as send_email_task_id, s.message_id, s.recipient, s.subject, s.status, s.reason,
  s.attempts, s.failures, s.max_attempts, s.retry_for, s.when_unknown, s.provider, s.provider_message_id,
  s.scheduled_at, s.created_at, s.created_by, s.namespace, s.runs, s.next_run_at, s.succeeded_at,
  s.outcome_unknown, s.delivery, s.delivery_reported_at
from comms.send_status s where s.channel = 'email';

comment on view comms.send_email_status is 'The status of every send of an e-mail, derived from its facts.';

create or replace view comms.send_sms_status with (security_barrier) as
select s.send_id as send_sms_task_id, s.message_id, s.recipient, s.status, s.reason, s.attempts, s.failures,
  s.max_attempts, s.retry_for, s.when_unknown, s.provider, s.provider_message_id, s.scheduled_at, s.created_at,
  s.created_by, s.namespace, s.runs, s.next_run_at, s.succeeded_at, s.outcome_unknown, s.delivery,
  s.delivery_reported_at
from comms.send_status s where s.channel = 'sms';

comment on view comms.send_sms_status is 'The status of every send of a text message, derived from its facts.';

-- How much of each cap is used in the current period. Caps without a current count are not shown.
create or replace view comms.send_cap_status with (security_barrier) as
select c.channel, c.scope, c.period, k.subject, k.sent, c.most, k.ends_at
from comms.send_cap c
join comms.send_count k on k.channel = c.channel and k.scope = c.scope and k.period = c.period
  and k.ends_at > queues.clock();

comment on view comms.send_cap_status is 'How much of each cap is used in the current period.';

-- The messages in the mailbox.
create or replace view comms.mailbox with (security_barrier) as
select m.mailbox_message_id, m.channel, m.recipient, m.sender, m.subject, m.text_body, m.html_body,
  m.reply_to, m.headers, m.idempotency_key, m.kept_at
from comms.mailbox_message m;

comment on view comms.mailbox is 'The messages in the mailbox.';

-- The status of every started business process: its next run, and what is wrong with it. A client sees those of its
-- namespace.
create or replace view queues.process_status with (security_barrier) as
select i.process, i.process_id, queues.process_status_of(i.decision, i.ended_at) as status, i.decision, i.reason,
  i.created_at, i.created_by, i.namespace, i.updated_at, i.next_run_at, i.task_id, i.awaited_task_id, i.trouble,
  i.troubled_at, i.repairs, i.repaired_at, i.ended_at, i.wait_key
from queues.process_instance i
where (select queues.may_read_all()) or i.namespace = (select queues.namespace());

comment on view queues.process_status is
  'The status of every started business process: its next run, and what is wrong with it.';

-- The business processes of this database, and the functions that run, repair, end and read them.
create or replace view queues.registered_process with (security_barrier) as
select p.process, p.kind, p.schema_name, p.root_table, p.supervisor, p.repair, p.cancel, p.history, p.files,
  p.registered_at, p.registered_by, p.kickoff
from queues.process p;

comment on view queues.registered_process is
  'The business processes of this database, and the functions that run, repair, end and read them.';
