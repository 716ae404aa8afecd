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
