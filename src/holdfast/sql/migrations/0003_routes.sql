-- Enqueueing finds the namespace, the defaults and the lane of a type in one row.

-- What an enqueue without options would look up in three tables, so that it reads one row. Unlogged, because the next
-- enqueues write it again. There is deliberately no unique key: two transactions that use a type at the same time each
-- insert a route instead of waiting for one another. See functions/lanes.sql.
create unlogged table queues.route (
  version bigint not null,
  lane_id bigint not null,
  priority integer not null,
  max_attempts integer not null,
  lease interval,
  deadline interval,
  login text collate "C" not null,
  type text collate "C" not null,
  namespace text collate "C" not null,
  queue text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index route_of_task on queues.route (login, type);
create sequence queues.route_version as bigint;
do $$ begin perform pg_catalog.nextval('queues.route_version'); end $$;
