-- What people read about queues, workers, limits, retention, namespaces, schedules and access.

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

-- Workers that were lost without retiring, and what was recovered from them.
create or replace view queues.worker_loss with (security_barrier) as
select l.worker_id, l.hostname, l.pid, l.started_at, l.last_heartbeat, l.lost_at, l.recovered, l.dead
from queues.loss l;

comment on view queues.worker_loss is 'Workers that were lost without retiring, and what was recovered from them.';

-- Declared defaults of task types, used for options that a task does not set.
-- For holdfast_reader.
create or replace view queues.registered_type with (security_barrier) as
select d.type, d.queue, d.priority, d.max_attempts, d.timeout, d.deadline, d.lease, d.executor, d.schema,
  d.registered_at, d.registered_by
from queues.task_type d;

comment on view queues.registered_type is 'Declared defaults of task types, used for options that a task does not set.';

-- How long data is kept.
create or replace view queues.retention_policy with (security_barrier) as
select r.status, r.type_prefix, r.keep, r.changed_at, r.changed_by
from queues.retention r;

comment on view queues.retention_policy is 'How long data is kept.';

-- Which logins and tokens use which namespace. Shows logins that were assigned to a namespace, and tokens. A login that
-- is not listed uses the namespace of its own name. A session that may neither read all tasks nor administer sees the
-- members of its own namespace.
create or replace view queues.namespace_member with (security_barrier) as
select m.namespace, m.kind, m.name, m.added_at, m.added_by
from (
  select n.namespace, 'login' as kind, n.login as name, n.added_at, n.added_by from queues.namespace_login n
  union all
  select t.namespace, 'token', t.name, t.added_at, t.added_by from queues.namespace_token t) m
where (select queues.may_read_all()) or (select queues.has_role('owner'))
   or m.namespace = (select queues.namespace());

comment on view queues.namespace_member is 'Which logins and tokens use which namespace.';

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

-- The decisions on the times of schedules, and acts on them. A session that may not read all tasks sees those of its
-- namespace.
create or replace view queues.schedule_event with (security_barrier) as
select e.schedule, e.namespace, e.event_type, e.occurred_at, e.nominal_at, e.task_id, e.actor, e.reason
from (
  select f.schedule, f.namespace, f.decision as event_type, f.decided_at as occurred_at, f.nominal_at, f.task_id,
    null::text as actor, null::text as reason
  from queues.schedule_firing f where f.decision <> 'forced'
  union all
  select a.schedule, a.namespace, a.act, a.occurred_at, null, f.task_id, a.actor, a.reason
  from queues.schedule_act a
  left join queues.schedule_firing f on a.act = 'forced' and f.schedule = a.schedule and f.namespace = a.namespace
    and f.nominal_at = a.occurred_at) e
where (select queues.may_read_all()) or e.namespace = (select queues.namespace());

comment on view queues.schedule_event is 'The decisions on the times of schedules, and acts on them.';

-- Acts on tokens, sessions and hidden values: who, when, why. Newest first, so that a limit reads no more than it
-- returns.
create or replace view queues.access_event with (security_barrier) as
select a.access_act_id, a.act, a.occurred_at, a.actor, a.token_id, a.task_id, a.mailbox_message_id, a.address, a.reason
from queues.access_act a order by a.occurred_at desc, a.access_act_id desc;

comment on view queues.access_event is 'Acts on tokens, sessions and hidden values: who, when, why.';
