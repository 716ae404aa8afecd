-- The schedules, and when they fire next. A session that may not read all tasks sees those of its namespace.
create or replace view queues.schedule_status with (security_barrier) as
select s.name, s.namespace,
  case when s.orphaned_at is not null then 'orphaned' when s.paused_at is not null then 'paused'
    when s.problem is not null then 'broken'
    else 'active' end as state,
  s.task ->> 'type' as type, s.cron, s.every, s.anchor, s.tz, s.catch_up, s.catch_up_limit, s.jitter, s.overlap,
  nullif(s.next_at, 'infinity') as next_at, coalesce(s.next_at = 'infinity', false) as never, s.last_nominal_at,
  s.last_task_id, s.declared_by, s.created_by, s.created_at, s.changed_at, s.decided_at, s.version,
  s.orphaned_at, s.paused_at, s.paused_by, s.pause_reason, s.problem, s.task
from queues.schedule s
where (select queues.may_read_all()) or s.namespace = (select queues.namespace());

comment on view queues.schedule_status is
  'The schedules, and when they fire next. A session that may not read all tasks sees those of its namespace.';
