-- What people read about tasks and runs. A view derives everything from rows that exist anyway. A session that may not
-- read all tasks sees those of its namespace; security_barrier keeps functions in its queries from seeing others.

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

comment on view queues.event_origin is
  'The history of all tasks, derived from the facts, with the row that each event comes from.';

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

comment on view queues.task_status is
  'The status of every task. A session that may not read all tasks sees those of its namespace.';

-- The history of a task in order, derived from the facts, with actor and reason of acts.
create or replace view queues.task_event with (security_barrier) as
select e.task_id, e.event_type, e.occurred_at, e.attempt, e.worker_id, e.actor, e.reason, e.data
from queues.event_origin e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.namespace = (select queues.namespace()))
order by e.task_id, e.occurred_at, e.rank;

comment on view queues.task_event is
  'The history of a task in order, derived from the facts, with actor and reason of acts.';

-- Every failed attempt, and the newest 50 failed tries of each step that is repeated.
create or replace view queues.task_error with (security_barrier) as
select e.error_id, e.task_id, e.attempt, e.kind, e.message, e.detail, e.worker_id, e.recovered, e.claimed_at,
  e.started_at, e.occurred_at, e.retry_at, e.step, e.step_try, e.step_tries
from queues.error e
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = e.task_id and t.namespace = (select queues.namespace()));

comment on view queues.task_error is
  'Every failed attempt, and the newest 50 failed tries of each step that is repeated.';

-- What suspended runs wait for. The same runs are visible as in queues.task_status.
create or replace view queues.wait_status with (security_barrier) as
select w.task_id, t.type, t.queue, w.name, w.signal, w.until, w.on_task
from queues.wait w
join queues.ready r on r.task_id = w.task_id and r.attempt = 0
join queues.task t on t.task_id = w.task_id
where (select queues.may_read_all()) or t.namespace = (select queues.namespace());

comment on view queues.wait_status is 'What suspended runs wait for.';

-- The signals that runs were sent, and the step that took each. The same runs are visible as in queues.task_status.
create or replace view queues.signal_status with (security_barrier) as
select s.signal_id, s.task_id, s.name, s.key, s.sent_at, s.sent_by, s.payload, p.name as taken_by, p.ended_at
  as taken_at
from queues.signal s
left join queues.step p on p.signal_id = s.signal_id and p.signal_id is not null
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = s.task_id and t.namespace = (select queues.namespace()));

comment on view queues.signal_status is 'The signals that runs were sent, and the step that took each.';

-- The steps of runs that have come to an end, in words, of each generation. The same runs are visible as in
-- queues.task_status.
create or replace view queues.step_status with (security_barrier) as
select s.task_id, s.number, s.name, queues.step_kind(s.kind) as kind, s.tries,
  s.ended_at - s.took_ms * interval '1 millisecond' as started_at, s.ended_at, s.until, s.result, s.error,
    s.signal_id, s.token, s.generation, s.arguments
from queues.step s
where (select queues.may_read_all())
   or exists (select from queues.task t where t.task_id = s.task_id and t.namespace = (select queues.namespace()));

comment on view queues.step_status is 'The steps of runs that have come to an end, in words.';

-- The environment of each start of a worker: versions, commit, host.
create or replace view queues.provenance with (security_barrier) as
select e.worker_id, e.recorded_at, e.environment from queues.worker_environment e;

comment on view queues.provenance is 'The environment of each start of a worker: versions, commit, host.';

-- Acts on queues, by whom and why.
create or replace view queues.queue_act with (security_barrier) as
select a.act_id, a.queue, a.act, a.occurred_at, a.actor, a.reason
from queues.act a where a.queue is not null;

comment on view queues.queue_act is 'Acts on queues, by whom and why.';
