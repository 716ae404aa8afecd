-- The rows of an e-mail in the tables of schema/20_comms.sql. For the owner: no role may read them.
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
