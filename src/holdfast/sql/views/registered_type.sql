-- What workers have declared for their types. For holdfast_reader.
create or replace view queues.registered_type with (security_barrier) as
select d.type, d.queue, d.priority, d.max_attempts, d.lease, d.registered_at, d.registered_by
from queues.task_type d;

comment on view queues.registered_type is 'What workers have declared for their types: used where a task says nothing itself.';
