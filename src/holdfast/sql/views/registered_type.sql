-- Declared defaults of task types, used for options that a task does not set.
-- For holdfast_reader.
create or replace view queues.registered_type with (security_barrier) as
select d.type, d.queue, d.priority, d.max_attempts, d.timeout, d.deadline, d.lease, d.executor, d.schema,
  d.registered_at, d.registered_by
from queues.task_type d;

comment on view queues.registered_type is 'Declared defaults of task types, used for options that a task does not set.';
