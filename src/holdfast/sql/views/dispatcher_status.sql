-- The running dispatchers.
create or replace view queues.dispatcher_status with (security_barrier) as
select d.dispatcher_id, d.hostname, d.pid, d.version, d.waiting, d.sinks, d.started_at, d.last_seen,
  d.last_seen > queues.clock() - (
    select s.value * interval '1 second' from queues.setting s where s.name = 'worker_timeout_seconds') as live
from queues.dispatcher d;

comment on view queues.dispatcher_status is 'The running dispatchers.';
