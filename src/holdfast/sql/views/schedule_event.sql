-- What became of the times of schedules, and what was done to them. A session that may not read all tasks sees those of its schedules.
create or replace view queues.schedule_event with (security_barrier) as
select e.schedule, e.event_type, e.occurred_at, e.nominal_at, e.task_id, e.actor, e.reason
from (
  select f.schedule, f.decision as event_type, f.decided_at as occurred_at, f.nominal_at, f.task_id, null::text as actor, null::text as reason
  from queues.schedule_firing f where f.decision <> 'forced'
  union all
  select a.schedule, a.act, a.occurred_at, null, f.task_id, a.actor, a.reason
  from queues.schedule_act a
  left join queues.schedule_firing f on a.act = 'forced' and f.schedule = a.schedule and f.nominal_at = a.occurred_at) e
where (select queues.may_read_all())
   or exists (select from queues.schedule s where s.name = e.schedule and s.created_by = session_user);

comment on view queues.schedule_event is
  'What became of the times of schedules, and what was done to them.';
