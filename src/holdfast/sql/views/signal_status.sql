-- The signals that runs were sent, and the step that took each. The same runs are visible as in queues.task_status.
create or replace view queues.signal_status with (security_barrier) as
select s.signal_id, s.task_id, s.name, s.key, s.sent_at, s.sent_by, s.payload, p.name as taken_by, p.ended_at
  as taken_at
from queues.signal s
left join queues.step p on p.signal_id = s.signal_id and p.signal_id is not null
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = s.task_id and t.namespace = (select queues.namespace()));

comment on view queues.signal_status is 'The signals that runs were sent, and the step that took each.';
