-- The limits, and how much of each is used.
create or replace view queues.limit_status with (security_barrier) as
with running as materialized (
  -- Types that share a lane are told apart by their tasks.
  select l.queue, case when l.type > '' then l.type
      else (select k.type from queues.task k where k.task_id = held.task_id) end as type, pg_catalog.count(*) as tasks
  from queues.lease held join queues.lane l on l.lane_id = held.lane_id
  where exists (select from queues.task_limit) group by 1, 2)
select t.subject, t.name, t.max_running, t.per_key, t.rate, t.per,
  coalesce((
    select pg_catalog.sum(r.tasks)::bigint from running r
    where case t.subject when 'queue' then r.queue else r.type end = t.name), 0) as running,
  case when t.rate is not null then pg_catalog.floor(queues.tokens_at(t, queues.clock()))::integer end as may_start,
  t.set_at, t.set_by, t.reason
from queues.task_limit t;

comment on view queues.limit_status is 'The limits, and how much of each is used.';
