-- The facts of every send in order: the request, the supervisor's decisions, the attempts and their results. A client
-- sees its own.
create or replace view comms.send_event with (security_barrier) as
select e.channel, e.send_id, e.fact, e.occurred_at, e.attempt, e.reason, e.task_id
from (
  select 'email' as channel, t.send_email_task_id as send_id, 'asked' as fact, t.created_at as occurred_at, null::integer as attempt,
    null::text as reason, null::uuid as task_id, t.namespace
  from comms.send_email_task t
  union all
  select 'email', f.send_email_task_id, f.decision, f.supervised_at, null, f.reason, f.next_task_id, t.namespace
  from comms.send_email_task_supervised f join comms.send_email_task t on t.send_email_task_id = f.send_email_task_id
  union all
  select 'email', f.send_email_task_id, 'attempt_scheduled', f.scheduled_at, f.attempt, null, f.task_id, t.namespace
  from comms.send_email_task_scheduled f join comms.send_email_task t on t.send_email_task_id = f.send_email_task_id
  union all
  select 'email', f.send_email_task_id, 'attempt_failed', f.failed_at, f.attempt, f.kind || ': ' || f.message, null, t.namespace
  from comms.send_email_task_failed f join comms.send_email_task t on t.send_email_task_id = f.send_email_task_id
  union all
  select 'email', f.send_email_task_id, 'attempt_succeeded', f.succeeded_at, f.attempt, f.provider, null, t.namespace
  from comms.send_email_task_succeeded f join comms.send_email_task t on t.send_email_task_id = f.send_email_task_id
  union all
  select 'email', f.send_email_task_id, 'reported_' || f.report, f.reported_at, null, f.reason, null, t.namespace
  from comms.send_email_task_reported f join comms.send_email_task t on t.send_email_task_id = f.send_email_task_id
  union all
  select 'sms', t.send_sms_task_id, 'asked', t.created_at, null, null, null, t.namespace
  from comms.send_sms_task t
  union all
  select 'sms', f.send_sms_task_id, f.decision, f.supervised_at, null, f.reason, f.next_task_id, t.namespace
  from comms.send_sms_task_supervised f join comms.send_sms_task t on t.send_sms_task_id = f.send_sms_task_id
  union all
  select 'sms', f.send_sms_task_id, 'attempt_scheduled', f.scheduled_at, f.attempt, null, f.task_id, t.namespace
  from comms.send_sms_task_scheduled f join comms.send_sms_task t on t.send_sms_task_id = f.send_sms_task_id
  union all
  select 'sms', f.send_sms_task_id, 'attempt_failed', f.failed_at, f.attempt, f.kind || ': ' || f.message, null, t.namespace
  from comms.send_sms_task_failed f join comms.send_sms_task t on t.send_sms_task_id = f.send_sms_task_id
  union all
  select 'sms', f.send_sms_task_id, 'attempt_succeeded', f.succeeded_at, f.attempt, f.provider, null, t.namespace
  from comms.send_sms_task_succeeded f join comms.send_sms_task t on t.send_sms_task_id = f.send_sms_task_id
  union all
  select 'sms', f.send_sms_task_id, 'reported_' || f.report, f.reported_at, null, f.reason, null, t.namespace
  from comms.send_sms_task_reported f join comms.send_sms_task t on t.send_sms_task_id = f.send_sms_task_id) e
where (select queues.may_read_all()) or e.namespace = (select queues.namespace());

comment on view comms.send_event is
  'The facts of every send in order: the request, the supervisor''s decisions, the attempts and their results.';
