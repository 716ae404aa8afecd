-- The failed tries of steps. The same runs are visible as in queues.task_status.
create or replace view queues.step_try_status with (security_barrier) as
select s.task_id, s.name, s.try, s.occurred_at, s.retry_at, s.error, s.token
from queues.step_try s
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = s.task_id and t.namespace = (select queues.namespace()));

comment on view queues.step_try_status is 'The failed tries of steps.';
