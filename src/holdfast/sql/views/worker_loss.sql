-- Workers that were lost without retiring, and what was recovered from them.
create or replace view queues.worker_loss with (security_barrier) as
select l.worker_id, l.hostname, l.pid, l.started_at, l.last_heartbeat, l.lost_at, l.recovered, l.dead
from queues.loss l;

comment on view queues.worker_loss is 'Workers that were lost without retiring, and what was recovered from them.';
