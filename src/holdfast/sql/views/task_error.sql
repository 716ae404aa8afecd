-- Every failed attempt, and the newest 50 failed tries of each step that is repeated.
create or replace view queues.task_error with (security_barrier) as
select e.error_id, e.task_id, e.attempt, e.kind, e.message, e.detail, e.worker_id, e.recovered, e.claimed_at,
  e.started_at, e.occurred_at, e.retry_at, e.step, e.step_try, e.step_tries
from queues.error e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.namespace = (select queues.namespace()));

comment on view queues.task_error is
  'Every failed attempt, and the newest 50 failed tries of each step that is repeated.';
