-- How each subscription does: what it asks for, what it has still to get, and whether its receiver answers. Of an address, not the
-- password nor what follows a question mark.
create or replace view queues.outbox_status with (security_barrier) as
select s.subscription_id, s.name, s.event_types, s.type_prefixes, s.sink,
  pg_catalog.regexp_replace(pg_catalog.regexp_replace(s.target, '^([a-z][a-z0-9+.-]*://[^:/@?#]*):[^/?#]*@', '\1:***@', 'i'),
    '[?#].*$', '?***') as target, s.options,
  pg_catalog.cardinality(s.secrets) as secrets, s.allow_internal, s.max_attempts, s.created_at, s.created_by,
  s.paused_at, s.paused_by, s.pause_reason,
  coalesce(waiting.pending, 0) as pending, coalesce(waiting.in_flight, 0) as in_flight, waiting.oldest,
  (select pg_catalog.count(*) from queues.dead_delivery d where d.subscription_id = s.subscription_id) as dead,
  case when b.open_until is null then 'closed' when b.open_until > queues.clock() then 'open' else 'half-open' end as breaker,
  b.failures, b.open_until, b.last_failure_at, b.last_error
from queues.subscription s
join queues.breaker b on b.subscription_id = s.subscription_id
left join lateral (
  select pg_catalog.count(*) as pending, pg_catalog.count(*) filter (where d.lease_until >= now.now) as in_flight,
    pg_catalog.min(d.emitted_at) as oldest
  from (select queues.clock() as now offset 0) now
  cross join queues.delivery d where d.subscription_id = s.subscription_id) waiting on true
where s.removed_at is null;

comment on view queues.outbox_status is
  'How each subscription does: what it asks for, what it has still to get, and whether its receiver answers.';
