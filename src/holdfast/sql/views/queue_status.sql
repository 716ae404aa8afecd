-- Waiting and running tasks per queue that has tasks, is paused or limited, or is served by a live worker. Counts up to
-- 100,000 waiting tasks in each lane, the first due first; of a longer one, due tasks are those of the last sample.
create or replace view queues.queue_status with (security_barrier) as
select q.queue,
  case when waiting.cut then greatest(waiting.due, (
      select a.due from queues.activity a where a.period = 1 and a.queue = q.queue and a.type = ''
        and a.due is not null and a.at > queues.clock() - interval '5 minutes' order by a.at desc limit 1))
    else coalesce(waiting.due, 0) end as due,
  coalesce(waiting.scheduled, 0) as scheduled, coalesce(held.running, 0) as running,
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
left join (
  select l.queue, pg_catalog.sum(r.due)::bigint as due, pg_catalog.sum(r.waiting - r.due)::bigint as scheduled,
    pg_catalog.min(r.first) filter (where r.due > 0) as oldest_due, pg_catalog.bool_or(r.due = 100000) as cut
  from (select queues.clock() as now offset 0) now
  cross join queues.lane l
  cross join lateral (
    select pg_catalog.count(*) as waiting, pg_catalog.count(*) filter (where r.run_at <= now.now) as due,
      pg_catalog.min(r.run_at) as first
    from (
      select r.run_at from queues.ready r where r.lane_id = l.lane_id order by r.run_at limit 100000) r) r
  group by l.queue) waiting on waiting.queue = q.queue
-- Not by lane: the table of leases is read once, and has no index for it that every claim would have to maintain.
left join (
  select l.queue, pg_catalog.count(*) as running
  from queues.lease le join queues.lane l on l.lane_id = le.lane_id group by l.queue) held on held.queue = q.queue
left join queues.paused_queue p on p.queue = q.queue;

comment on view queues.queue_status is
  'Waiting and running tasks per queue that has tasks, is paused or limited, or is served by a live worker.';
