-- Events of the outbox, each with the state of its deliveries. Clients see those of their namespace.
create or replace view queues.event_status with (security_barrier) as
select e.event_id, e.event_type, e.occurred_at, e.aggregate_id, coalesce(e.subject, e.aggregate_id) as subject,
  e.source, e.task_id, e.traceparent, e.emitted_by, e.namespace, e.data,
  (select pg_catalog.count(*) from queues.delivered d where d.event_id = e.event_id) as delivered,
  (select pg_catalog.count(*) from queues.dead_delivery d where d.event_id = e.event_id) as dead,
  e.deliveries, e.transaction_id, e.event_number
from queues.outbox_event e
where (select queues.may_read_all()) or e.namespace = (select queues.namespace());

comment on view queues.event_status is 'Events of the outbox, each with the state of its deliveries.';
