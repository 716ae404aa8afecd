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
