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
