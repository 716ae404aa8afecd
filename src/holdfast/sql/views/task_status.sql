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
