-- What people read about tasks and runs, and about queues, workers, limits, retention, namespaces, schedules and
-- access. A view derives everything from rows that exist anyway. A session that may not read all tasks sees those of
-- its namespace; security_barrier keeps functions in its queries from seeing others.

-- The history of all tasks, derived from the facts, with the row that each event comes from: act_id of queues.act or
-- error_id of queues.error, else the largest bigint. So a condition on both limits how many rows of one task are read.
-- Nothing extra is written for ordinary steps. Rank orders events of the same instant in the order in which they must
-- have happened.
-- Internal: read by task_event and task_events_of, which check the rights.
create or replace view queues.event_origin as
select t.task_id, 'created' as event_type, t.created_at as occurred_at, null::integer as attempt,
  null::text as worker_id, t.enqueued_by as actor, null::text as reason,
  pg_catalog.jsonb_build_object('run_at', t.run_at) as data, 0 as rank,
  9223372036854775807 as act_id, 9223372036854775807 as error_id
from queues.task t

union all
select l.task_id, v.event_type, v.occurred_at, l.attempt, l.worker_id, null, null, null, v.rank, 9223372036854775807,
  9223372036854775807
from queues.lease l
cross join lateral (values ('claimed', l.claimed_at, 2), ('started', l.started_at, 3)) v(event_type,
  occurred_at, rank)
where v.occurred_at is not null

union all
select o.task_id, v.event_type, v.occurred_at, o.attempt, o.worker_id, null,
  case when v.rank > 3 then o.reason end, null, v.rank, o.act_id, 9223372036854775807
from (
  select o.task_id, o.status, o.claimed_at, o.started_at, o.finished_at, o.attempt, o.worker_id, o.reason,
    9223372036854775807 as act_id
  from queues.outcome o
  union all
  -- A retry removes the outcome: the act keeps how the task had ended.
  select a.task_id, a.data ->> 'status', (a.data ->> 'claimed_at')::timestamptz,
    (a.data ->> 'started_at')::timestamptz, (a.data ->> 'finished_at')::timestamptz, a.attempt, a.worker_id,
    a.data ->> 'reason', a.act_id
  from queues.act a where a.act = 'retried') o
cross join lateral (values ('claimed', o.claimed_at, 2), ('started', o.started_at, 3), (o.status, o.finished_at, 6))
  v(event_type, occurred_at, rank)
where v.occurred_at is not null
  -- A person's act records the cancellation itself, and an error records the attempt that it ended.
  and not (o.status = 'cancelled' and v.rank = 6 and exists (
    select from queues.act a where a.task_id = o.task_id and a.act = 'cancelled' and a.occurred_at = o.finished_at))
  and not (v.rank < 6 and exists (
    select from queues.error e where e.task_id = o.task_id and e.claimed_at = o.claimed_at))

union all
select e.task_id, v.event_type, v.occurred_at, e.attempt, e.worker_id, null, v.reason, v.data, v.rank,
  9223372036854775807, e.error_id
from queues.error e
cross join lateral (values
  ('claimed', e.claimed_at, null::text, null::jsonb, 2),
  ('started', e.started_at, null, null, 3),
  (case when e.recovered then 'recovered'
    when pg_catalog.starts_with(e.kind, 'killed_on_') then 'killed' else 'failed' end, e.occurred_at, e.message,
    pg_catalog.jsonb_build_object('kind', e.kind), 4),
  ('retried', case when e.retry_at is not null and not e.recovered then e.occurred_at end, null,
    pg_catalog.jsonb_build_object('run_at', e.retry_at), 5)) v(event_type, occurred_at, reason, data, rank)
where v.occurred_at is not null and e.step is null
  and not (v.event_type = 'failed' and (
    exists (select from queues.outcome o
      where o.task_id = e.task_id and o.status = 'failed' and o.finished_at = e.occurred_at)
    or exists (select from queues.act a
      where a.task_id = e.task_id and a.act = 'retried' and a.data ->> 'status' = 'failed'
        and (a.data ->> 'finished_at')::timestamptz = e.occurred_at)))

union all
select a.task_id, v.event_type, v.occurred_at, a.attempt, a.worker_id,
  -- What a worker reported has no actor: its reason comes from a handler.
  case when v.rank = 7 and a.act not in ('released', 'snoozed', 'suspended', 'continued') then a.actor end,
  case when v.rank = 7 then a.reason end, case when v.rank = 7 then a.data end, v.rank,
  a.act_id, 9223372036854775807
from queues.act a
cross join lateral (values
  ('claimed', case when a.act in ('released', 'snoozed', 'suspended', 'continued')
    then (a.data ->> 'claimed_at')::timestamptz end, 2),
  ('started', case when a.act in ('released', 'snoozed', 'suspended', 'continued')
    then (a.data ->> 'started_at')::timestamptz end, 3),
  (a.act, a.occurred_at, 7)) v(event_type, occurred_at, rank)
where a.task_id is not null and v.occurred_at is not null;

-- The status of every task. A session that may not read all tasks sees those of its namespace.
create or replace view queues.task_status with (security_barrier) as
select
  t.task_id, t.type, t.queue, t.executor,
  queues.status_of(o.status, l.claimed_at, l.started_at, coalesce(r.attempt, d.parked_attempt),
    coalesce(r.run_at, d.parked_run_at), queues.clock(),
    (select true from queues.wait w where w.task_id = t.task_id limit 1)) as status,
  t.priority, t.payload, o.result, e.error, e.message as last_error, t.idempotency_key,
  pg_catalog.encode(queues.spec_hash(t.type, t.executor, t.payload), 'hex') as spec_hash,
  coalesce(o.attempt, l.attempt, r.attempt, d.parked_attempt) as attempt, t.max_attempts,
  coalesce(r.run_at, l.run_at, d.parked_run_at, t.run_at) as run_at,
  coalesce(o.worker_id, l.worker_id) as worker_id, l.lease_until, t.created_at,
  coalesce(o.claimed_at, l.claimed_at) as claimed_at, coalesce(o.started_at, l.started_at) as started_at, o.finished_at,
  greatest(t.created_at, o.finished_at, l.claimed_at, l.started_at, d.deleted_at, e.occurred_at,
    a.occurred_at) as updated_at,
  d.deleted_at, d.reason as delete_reason,
  o.reason, l.progress, t.timeout, t.lease, t.metadata, t.enqueued_by, t.namespace, t.concurrency_key,
  t.deadline,
  case when o.status = 'cancelled' then (
    select c.actor from queues.act c
    where c.task_id = t.task_id and c.act = 'cancelled' and c.occurred_at = o.finished_at limit 1) end as cancelled_by,
  coalesce(t.generation, 1) as generation
from queues.task t
left join queues.ready r on r.task_id = t.task_id
left join queues.lease l on l.task_id = t.task_id
left join queues.outcome o on o.task_id = t.task_id
left join queues.deletion d on d.task_id = t.task_id
left join lateral (
  select e.message, e.occurred_at,
    pg_catalog.jsonb_build_object('kind', e.kind, 'message', e.message, 'attempt', e.attempt,
    'occurred_at', e.occurred_at, 'worker_id', e.worker_id, 'detail', e.detail) as error
  from queues.error e where e.task_id = t.task_id order by e.error_id desc limit 1) e on true
left join lateral (
  select a.occurred_at from queues.act a where a.task_id = t.task_id order by a.act_id desc limit 1) a on true
where (select queues.may_read_all()) or t.namespace = (select queues.namespace());

-- The history of a task in order, derived from the facts, with actor and reason of acts.
create or replace view queues.task_event with (security_barrier) as
select e.task_id, e.event_type, e.occurred_at, e.attempt, e.worker_id, e.actor, e.reason, e.data
from queues.event_origin e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.namespace = (select queues.namespace()))
order by e.task_id, e.occurred_at, e.rank;

-- Every failed attempt, and the newest 50 failed tries of each step that is repeated.
create or replace view queues.task_error with (security_barrier) as
select e.error_id, e.task_id, e.attempt, e.kind, e.message, e.detail, e.worker_id, e.recovered, e.claimed_at,
  e.started_at, e.occurred_at, e.retry_at, e.step, e.step_try, e.step_tries
from queues.error e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.namespace = (select queues.namespace()));

-- What suspended runs wait for. The same runs are visible as in queues.task_status.
create or replace view queues.wait_status with (security_barrier) as
select w.task_id, t.type, t.queue, w.name, w.signal, w.until, w.on_task
from queues.wait w
join queues.ready r on r.task_id = w.task_id and r.attempt = 0
join queues.task t on t.task_id = w.task_id
where (select queues.may_read_all()) or t.namespace = (select queues.namespace());

-- The signals that runs were sent, and the step that took each. The same runs are visible as in queues.task_status.
create or replace view queues.signal_status with (security_barrier) as
select s.signal_id, s.task_id, s.name, s.key, s.sent_at, s.sent_by, s.payload, p.name as taken_by, p.ended_at
  as taken_at
from queues.signal s
left join queues.step p on p.signal_id = s.signal_id and p.signal_id is not null
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = s.task_id and t.namespace = (select queues.namespace()));

-- The steps of runs that have come to an end, in words, of each generation. The same runs are visible as in
-- queues.task_status.
create or replace view queues.step_status with (security_barrier) as
select s.task_id, s.number, s.name, queues.step_kind(s.kind) as kind, s.tries,
  s.ended_at - s.took_ms * interval '1 millisecond' as started_at, s.ended_at, s.until, s.result, s.error,
    s.signal_id, s.token, s.generation, s.arguments
from queues.step s
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = s.task_id and t.namespace = (select queues.namespace()));

-- The environment of each start of a worker, with versions, commit and host.
create or replace view queues.provenance with (security_barrier) as
select e.worker_id, e.recorded_at, e.environment from queues.worker_environment e;

-- Acts on queues, by whom and why.
create or replace view queues.queue_act with (security_barrier) as
select a.act_id, a.queue, a.act, a.occurred_at, a.actor, a.reason
from queues.act a where a.queue is not null;

-- Waiting and running tasks per queue that has tasks, is paused or limited, or is served by a live worker. Counts up to
-- 100,000 waiting tasks in each lane, the first due first; of a longer one, due tasks are those of the last sample.
create or replace view queues.queue_status with (security_barrier) as
select q.queue,
  case when waiting.cut then greatest(waiting.due, (
      select a.due from queues.activity a where a.queue = q.queue and a.type = ''
        and a.due is not null and a.at > queues.clock() - interval '10 minutes' order by a.at desc limit 1))
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

-- The workers, their tasks, and which one is the leader.
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

-- Workers that were lost without retiring, and what was recovered from them.
create or replace view queues.worker_loss with (security_barrier) as
select l.worker_id, l.hostname, l.pid, l.started_at, l.last_heartbeat, l.lost_at, l.recovered, l.dead
from queues.loss l;

-- Declared defaults of task types, used for options that a task does not set.
-- For holdfast_reader.
create or replace view queues.registered_type with (security_barrier) as
select d.type, d.queue, d.priority, d.max_attempts, d.timeout, d.deadline, d.lease, d.executor, d.schema,
  d.registered_at, d.registered_by
from queues.task_type d;

-- How long data is kept.
create or replace view queues.retention_policy with (security_barrier) as
select r.status, r.type_prefix, r.keep, r.changed_at, r.changed_by
from queues.retention r;

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

-- Acts on tokens, sessions and hidden values, with who, when and why. Newest first, so that a limit reads no more than
-- it returns.
create or replace view queues.access_event with (security_barrier) as
select a.access_act_id, a.act, a.occurred_at, a.actor, a.token_id, a.task_id, a.mailbox_message_id, a.address, a.reason
from queues.access_act a order by a.occurred_at desc, a.access_act_id desc;
