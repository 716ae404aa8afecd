-- The limits, and how much of each is used.
create or replace view queues.limit_status with (security_barrier) as
select t.subject, t.name, t.max_running, t.per_key, t.rate, t.per,
  (select pg_catalog.count(*) from queues.lane l join queues.lease held on held.lane_id = l.lane_id
   where t.subject = 'queue' and l.queue = t.name or t.subject = 'type' and (l.type = t.name or l.type = '' and exists (
     select from queues.task k where k.task_id = held.task_id and k.type = t.name))) as running,
  case when t.rate is not null then pg_catalog.floor(queues.tokens_at(t, queues.clock()))::integer end as may_start,
  t.set_at, t.set_by, t.reason
from queues.task_limit t;

comment on view queues.limit_status is 'The limits, and how much of each is used.';
