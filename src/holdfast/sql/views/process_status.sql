-- The status of every started business process: its next run, and what is wrong with it. A client sees those of its
-- namespace.
create or replace view queues.process_status with (security_barrier) as
select i.process, i.process_id, queues.process_status_of(i.decision, i.ended_at) as status, i.decision, i.reason,
  i.created_at, i.created_by, i.namespace, i.updated_at, i.next_run_at, i.task_id, i.awaited_task_id, i.trouble,
  i.troubled_at, i.repairs, i.repaired_at, i.ended_at, i.wait_key
from queues.process_instance i
where (select queues.may_read_all()) or i.namespace = (select queues.namespace());

comment on view queues.process_status is
  'The status of every started business process: its next run, and what is wrong with it.';
