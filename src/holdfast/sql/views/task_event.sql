-- The history of a task in order, derived from the facts, with actor and reason of acts.
create or replace view queues.task_event with (security_barrier) as
select e.task_id, e.event_type, e.occurred_at, e.attempt, e.worker_id, e.actor, e.reason, e.data
from queues.event_origin e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.namespace = (select queues.namespace()))
order by e.task_id, e.occurred_at, e.rank;

comment on view queues.task_event is
  'The history of a task in order, derived from the facts, with actor and reason of acts.';
