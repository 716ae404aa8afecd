-- Routes: what an enqueue would otherwise look up in three tables, one row for each login and type. They only save
-- time: an enqueue that finds none looks everything up, and adds one for the next.
-- Invariant: a route of the current version has the namespace of the login and the declared defaults of the type as the
-- last committed change has left them, or as this transaction has. No route leads to a lane that is marked as idle. A
-- login has about a hundred routes at most; a client that uses more types looks them up each time.
-- Lock order: add_route shares a lane's row, without waiting, until its transaction ends; claims do not mind. For a
-- moment, it locks task_type and namespace_login against changes, without waiting; a change waits for that moment.
-- At the same time: the transaction of an enqueue may be long, and its route may be committed long after somebody has
-- changed what it was made of. So a change does not look for routes, but takes the next version, which every session
-- sees at once; add_route reads the version and what belongs to it while nobody changes anything. While a change is
-- open, no route is valid and none is added. tidy_lanes marks no lane while an open transaction adds a route to it,
-- removes the routes of those that it marks, and counts everybody who reads routes as a user of lanes.

-- Adds the route of a type for the login of the session, unless there are too many, or somebody is changing what it is
-- made of. Only under read committed: what an old snapshot shows is not the last change.
-- Internal: called by enqueue_simple after it found none. Locks: the lane's row, shared and without waiting.
create or replace function queues.add_route(type text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _login constant text := session_user::text;
  _route record;
  _lane_id bigint;
begin
  if (select count(*) from (select from queues.route r where r.login = _login limit 100) known) >= 100
    or pg_relation_size('queues.route') > 8388608
  then
    return;
  end if;
  begin
    lock table queues.task_type, queues.namespace_login in share mode nowait;
    select pg_sequence_last_value('queues.route_version') as version,
      coalesce(n.namespace, queues.namespace_of_login(_login)) as namespace, d.*
    into _route
    from queues.with_defaults(add_route.type, null, null, null, null, null) d
    left join queues.namespace_login n on n.login = _login;
    -- Undoing the block is what releases the locks before the transaction ends. Variables keep their values.
    raise exception 'undo';
  exception
    when lock_not_available then
      return;
    when raise_exception then
      null;
  end;
  select l.lane_id into _lane_id from queues.lane l
  where l.queue = _route.queue and l.type in (add_route.type, '') and l.priority = _route.priority
    and l.concurrency_key is null and l.leaving is null
  order by l.type desc limit 1
  for key share skip locked;
  -- A separate statement, so that it sees a mark that was committed before the lane was locked.
  insert into queues.route (version, lane_id, priority, max_attempts, lease, deadline, login, type, namespace, queue)
  select _route.version, l.lane_id, _route.priority, _route.max_attempts, _route.lease, _route.deadline, _login,
    add_route.type, _route.namespace, _route.queue
  from queues.lane l where l.lane_id = _lane_id and l.leaving is null and _route.version is not null;
end
$$;

-- Makes all routes invalid. Called after the change of what they are made of, in its transaction: after, because the
-- change has the lock that keeps add_route from reading what was there before.
-- Internal: called by all that change task_type or namespace_login. Locks: none.
create or replace function queues.renew_routes()
returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select nextval('queues.route_version')
$$;
