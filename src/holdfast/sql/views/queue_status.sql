-- Waiting and running tasks per queue that has tasks, is paused or limited, or is served by a live worker.
create or replace view queues.queue_status with (security_barrier) as
select q.queue,
  coalesce(waiting.due, 0) as due, coalesce(waiting.scheduled, 0) as scheduled, coalesce(held.running, 0) as running,
  waiting.oldest_due, p.paused_at, p.paused_by, p.reason as pause_reason,
  (select pg_catalog.count(*) from queues.worker w
   where (q.queue = any (w.queues) or exists (
       select from queues.lane l, pg_catalog.unnest(w.type_prefixes) prefix
       where l.queue = q.queue and pg_catalog.starts_with(l.type, prefix)))
     and w.last_heartbeat > queues.clock() - w.timeout) as live_workers
from (
  select l.queue from queues.lane l
  union select p.queue from queues.paused_queue p
  union select t.name from queues.task_limit t where t.subject = 'queue'
  union select served.queue from queues.worker w cross join pg_catalog.unnest(w.queues) served(queue)
    where w.last_heartbeat > queues.clock() - w.timeout) q(queue)
left join lateral (
  select pg_catalog.count(*) filter (where r.run_at <= now.now) as due,
    pg_catalog.count(*) filter (where r.run_at > now.now) as scheduled,
    pg_catalog.min(r.run_at) filter (where r.run_at <= now.now) as oldest_due
  from (select queues.clock() as now offset 0) now
  cross join queues.lane l join queues.ready r on r.lane_id = l.lane_id where l.queue = q.queue) waiting on true
left join lateral (
  select pg_catalog.count(*) as running
  from queues.lane l join queues.lease le on le.lane_id = l.lane_id where l.queue = q.queue) held on true
left join queues.paused_queue p on p.queue = q.queue;

comment on view queues.queue_status is
  'Waiting and running tasks per queue that has tasks, is paused or limited, or is served by a live worker.';
