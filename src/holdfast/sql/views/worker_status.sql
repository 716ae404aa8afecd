-- The workers: their tasks, and which one is the leader.
create or replace view queues.worker_status with (security_barrier) as
select w.worker_id, w.hostname, w.pid, w.version, w.queues, w.type_prefixes, w.concurrency, w.in_flight, w.idle,
  w.started_at, w.last_heartbeat,
  w.last_heartbeat > queues.clock() - w.timeout as live,
  coalesce(l.leader_until > queues.clock(), false) as leader, l.term, l.leader_until, w.timeout, w.running, w.heartbeat,
  case
    when w.last_heartbeat <= queues.clock() - w.timeout then 'silent'
    when w.last_heartbeat <= queues.clock() - 2 * w.heartbeat - interval '1 second' then 'late'
    when w.in_flight = 0 then 'idle'
    else 'working'
  end as state, w.memory_bytes, w.finished, w.per_second,
  (select s.shard_name from queues.shard s) as shard
from queues.worker w
left join queues.leadership l on l.worker_id = w.worker_id;

comment on view queues.worker_status is 'The workers: their tasks, and which one is the leader.';
