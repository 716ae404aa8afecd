-- Every delivery of every event: outstanding, delivered or dead. Clients see those of events of their
-- namespace.
create or replace view queues.delivery_status with (security_barrier) as
select e.event_id, e.task_id, e.event_type, e.occurred_at, s.name as subscription, d.status, d.attempt, d.due_at,
  d.settled_at, d.dispatcher_id, d.last_error
from queues.outbox_event e
cross join lateral (
  select w.subscription_id, case when w.lease_until >= queues.clock() then 'in_flight'
    when w.attempt > 0 then 'retrying' else 'waiting' end
      as status, w.attempt, w.due_at, null::timestamptz as settled_at, w.dispatcher_id, w.last_error
  from queues.subscription of_name
  join queues.delivery w on w.subscription_id = of_name.subscription_id
    and w.namespace = e.namespace and w.aggregate_id = coalesce(e.aggregate_id, e.event_id::text)
    and w.event_number = e.event_number
  union all
  select a.subscription_id, 'delivered', a.attempt, null, a.delivered_at, a.dispatcher_id, null
  from queues.delivered a where a.event_id = e.event_id
  union all
  select x.subscription_id, 'dead', x.attempt, null, x.died_at, null, x.last_error
  from queues.dead_delivery x where x.event_id = e.event_id) d
left join queues.subscription s on s.subscription_id = d.subscription_id
where (select queues.may_read_all()) or e.namespace = (select queues.namespace());

comment on view queues.delivery_status is 'Every delivery of every event: outstanding, delivered or dead.';
