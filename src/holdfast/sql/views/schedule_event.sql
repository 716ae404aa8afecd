-- The decisions on the times of schedules, and acts on them. A session that may not read all tasks sees those of its
-- namespace.
create or replace view queues.schedule_event with (security_barrier) as
select e.schedule, e.namespace, e.event_type, e.occurred_at, e.nominal_at, e.task_id, e.actor, e.reason
from (
  select f.schedule, f.namespace, f.decision as event_type, f.decided_at as occurred_at, f.nominal_at, f.task_id,
    null::text as actor, null::text as reason
  from queues.schedule_firing f where f.decision <> 'forced'
  union all
  select a.schedule, a.namespace, a.act, a.occurred_at, null, f.task_id, a.actor, a.reason
  from queues.schedule_act a
  left join queues.schedule_firing f on a.act = 'forced' and f.schedule = a.schedule and f.namespace = a.namespace
    and f.nominal_at = a.occurred_at) e
where (select queues.may_read_all()) or e.namespace = (select queues.namespace());

comment on view queues.schedule_event is 'The decisions on the times of schedules, and acts on them.';
