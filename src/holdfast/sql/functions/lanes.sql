-- Lanes: the lists in which tasks wait. A claim reads one index range per lane, so there have to be few of them, and
-- those that are idle have to go. Routes save an enqueue what it would otherwise look up in three tables, lane
-- included.
-- Invariant: the lane of every ready row and lease exists. A lane is removed only when it has neither and no open
-- transaction can still add a task to it. Two lanes for the same queue, type and priority are allowed: claims read
-- both. A route of the current version is what the last committed change has left, or this transaction has.
-- Lock order: an enqueue locks no lane, unless it adds a route; under stricter isolation than read committed it shares
-- the row, and fails if the lane was removed. tidy_lanes locks lanes, then their routes, then ready rows that wait for
-- a concurrency key, then leases, all without waiting but for another tidy_lanes. add_route: see there.
-- At the same time: an enqueue may use a lane that is being marked as idle. tidy_lanes then sees its transaction id
-- among those that may know the lane, and keeps the lane until they have ended. It counts everybody who reads routes as
-- a user of lanes, and marks no lane to which an open transaction adds a route. Two sessions that need a new lane each
-- create one, instead of waiting for each other.
-- Explained in docs/design/claims.md.

-- Marks idle lanes, removes those marked by earlier transactions, and returns how many it changed. Claims then need not
-- read them. Call it until it returns 0 to remove everything that can be removed. The lane of a concurrency key is idle
-- if it has no waiting task five seconds after it was created, other lanes if they have no waiting or running task
-- after a minute.
-- For holdfast_worker. Locks: lanes, without waiting.
--
-- An enqueue reads a lane without locking it, and its task becomes visible only when it commits. But before it reads
-- the lane, it has a transaction id and a lock on the table, and keeps both until it ends. So a transaction that starts
-- reading after the mark was committed finds neither the lane nor a route to it, and those that read before are known
-- by their ids once the mark is visible; the highest of these ids is stored with the lane. When none of them is left,
-- no task can be added to the lane. Under stricter isolation, a transaction may use an old snapshot; then find_lane
-- locks the lane's row.
create or replace function queues.tidy_lanes(max_lanes integer default 10000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _transaction_id constant bigint := pg_current_xact_id()::text::bigint;
  _next bigint;
  _oldest bigint;
  _lanes bigint[];
  _removed integer;
  _marked integer;
begin
  perform queues.check_number('max_lanes', max_lanes, 1, 10000);
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF412', message = 'lanes can be tidied only under read committed';
  end if;

  -- Excludes lanes that this transaction has marked: other transactions cannot see the mark yet. Those that did not see
  -- a mark are among the users that are read next.
  _lanes := array(
    select l.lane_id from queues.lane l where l.leaving < 0 and l.leaving <> -_transaction_id limit max_lanes
    for update skip locked);
  select max(id) + 1, min(id) into _next, _oldest from unnest(queues.users_of_lanes()) id;
  update queues.lane l set leaving = coalesce(_next, 1) where l.lane_id = any (_lanes);

  _lanes := array(
    select l.lane_id from queues.lane l
    where l.leaving > 0 and (_oldest is null or l.leaving <= _oldest)
      and not exists (select from queues.ready r where r.lane_id = l.lane_id)
      and not exists (select from queues.lease e where e.lane_id = l.lane_id)
    limit max_lanes for update skip locked);
  -- A separate statement, so that it sees what was committed by transactions that had locked a lane or have ended.
  delete from queues.lane l
  where l.lane_id = any (_lanes)
    and not exists (select from queues.ready r where r.lane_id = l.lane_id)
    and not exists (select from queues.lease e where e.lane_id = l.lane_id);
  get diagnostics _removed = row_count;
  delete from queues.claim_position p
  where p.lane_id = any (_lanes) and not exists (select from queues.lane l where l.lane_id = p.lane_id);

  _lanes := array(
    select idle.lane_id from queues.lane idle
    where idle.leaving is null
      and idle.made_at not between
        _now - case when idle.concurrency_key > '' then interval '5 seconds' else interval '1 minute' end and _now
      and not exists (select from queues.ready r where r.lane_id = idle.lane_id)
      and not exists (select from queues.lease e where e.lane_id = idle.lane_id)
    limit max_lanes for update skip locked);
  update queues.lane l set leaving = -_transaction_id where l.lane_id = any (_lanes);
  get diagnostics _marked = row_count;
  -- After the lanes are locked, so that it sees the routes of all that had shared them.
  delete from queues.route r where r.lane_id = any (_lanes);

  -- The end of a task does not wait for one that another transaction holds and then does not take after all.
  perform queues.bring_back(array(
    select first.task_id from queues.lane l
    cross join lateral (
      select r.task_id from queues.ready r where r.lane_id = l.lane_id order by r.run_at, r.task_id limit 1) first
    where l.concurrency_key > '' and not exists (
      select from queues.lease e where e.concurrency_key = queues.qualified_key(l.namespace, l.concurrency_key))
    limit max_lanes));
  -- Claims count tasks whose claim did not know a limit only within ten seconds after it was set.
  perform queues.count_running(t.subject, t.name) from queues.task_limit t
  where t.max_running is not null and t.set_at > _now - interval '1 hour';
  delete from queues.lane_hoarder h where not queues.hoards_lanes(h.namespace);
  -- Last, so that nobody who waits for their rows waits for more.
  delete from queues.route r
  where r.ctid = any (array(
    select old.ctid from queues.route old where old.version < pg_sequence_last_value('queues.route_version')
    for update skip locked));
  return _removed + _marked;
end
$$;

-- Returns the ids of open transactions that may have read queues.lane, or a route to a lane, to add a task.
create or replace function queues.users_of_lanes()
returns bigint[]
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  -- pg_locks has only the lower 32 bits of an id: use the id nearest to the server's current one.
  select coalesce(array_agg(n.next + (held.id - n.next + 2147483648 & 4294967295) - 2147483648), '{}')
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next) n
  cross join (
    select x.transactionid::text::bigint as id
    from pg_locks l
    join pg_locks x on x.virtualtransaction = l.virtualtransaction and x.locktype = 'transactionid' and x.granted
    -- Prepared transactions have no pid.
    where l.locktype = 'relation' and l.relation in ('queues.lane'::regclass, 'queues.route'::regclass)
      and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())) held
$$;

-- Returns whether a namespace uses more lanes than allowed. The lanes of single concurrency keys do not count: claims
-- do not read them, and there are at most as many as keys with running tasks.
create or replace function queues.hoards_lanes(namespace text)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_lanes');
begin
  if (select count(*) from (
    select from queues.lane l where l.namespace = hoards_lanes.namespace and coalesce(l.concurrency_key, '') = ''
    limit _most + 1) made) <= _most
  then
    return false;
  end if;
  -- Idle lanes are removed automatically.
  return (select count(*) from (
    select from queues.lane l where l.namespace = hoards_lanes.namespace and coalesce(l.concurrency_key, '') = ''
      and exists (select from queues.ready r where r.lane_id = l.lane_id)
    limit _most + 1) waiting) > _most;
end
$$;

-- Returns the lanes of these queues and types that claims read, each once, including those of paused queues. Among the
-- types, the empty one stands for lanes that types share. No pinned path, so that PostgreSQL can inline it: each half
-- is an index range.
create or replace function queues.lanes_of(queues text[], types text[])
returns setof queues.lane
language sql stable
as $$
  select l.* from queues.lane l where l.queue = any (queues) and coalesce(l.concurrency_key, '') = ''
  union all
  select l.* from queues.lane l
  where l.type = any (types) and coalesce(l.concurrency_key, '') = '' and (l.queue = any (queues)) is not true
$$;

-- Returns the lane of one concurrency key, in which tasks wait until another one of the key ends, creating it if
-- needed. With an empty key, or none, that of the type, for tasks with keys or without.
create or replace function queues.own_lane(
  queue text, type text, priority integer, concurrency_key text, namespace text)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- The transaction id must exist before a lane is read: see tidy_lanes.
  _transaction_id constant xid8 := pg_current_xact_id();
  _lane_id bigint;
begin
  if concurrency_key is null then
    select l.lane_id into _lane_id from queues.lane l
    where l.queue = own_lane.queue and l.type = own_lane.type and l.priority = own_lane.priority
      and l.concurrency_key is null and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  else
    select l.lane_id into _lane_id from queues.lane l
    where l.queue = own_lane.queue and l.type = own_lane.type and l.priority = own_lane.priority
      and l.concurrency_key = own_lane.concurrency_key
      and (own_lane.concurrency_key = '' or l.namespace = own_lane.namespace) and l.leaving is null
    order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
  end if;
  if _lane_id is null then
    insert into queues.lane (made_at, priority, queue, type, concurrency_key, namespace)
    values (queues.clock(), priority, queue, type, concurrency_key, namespace) returning lane_id into _lane_id;
  end if;
  return _lane_id;
end
$$;

-- Returns the types with one of these prefixes that have a lane, with one index lookup for each, and the empty type,
-- which stands for lanes that types share.
create or replace function queues.types_in_use(type_prefixes text[])
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _found text[] := array[''];
  _prefix text;
  _type text;
begin
  foreach _prefix in array type_prefixes loop
    select l.type into _type from queues.lane l
    where l.type >= _prefix and l.type > '' and coalesce(l.concurrency_key, '') = '' order by l.type limit 1;
    while starts_with(_type, _prefix) loop
      _found := _found || _type;
      select l.type into _type from queues.lane l
      where l.type > _type and coalesce(l.concurrency_key, '') = '' order by l.type limit 1;
    end loop;
  end loop;
  return _found;
end
$$;

-- Returns the lane that a task with this queue, type, priority and concurrency key is enqueued to, creating it if
-- needed. Beyond 32 types of a queue and priority, the others share a lane. If bounded, respects the limit on lanes of
-- a namespace.
create or replace function queues.lane_for(
  queue text, type text, priority integer, concurrency_key text, namespace text, bounded boolean default false)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _lane_id bigint := queues.find_lane(queue, type, priority, concurrency_key);
  _types integer;
begin
  if _lane_id is null then
    select count(*) into _types from queues.lane l
    where l.queue = lane_for.queue and l.priority = lane_for.priority and l.leaving is null
      and coalesce(l.concurrency_key, '') = '' and (l.concurrency_key is null) = (lane_for.concurrency_key is null);
    insert into queues.lane (made_at, priority, queue, type, concurrency_key, namespace)
    values (queues.clock(), priority, queue, case when _types < 32 then type else '' end,
      case when concurrency_key is not null then '' end, namespace)
    returning lane_id into _lane_id;
    if bounded then
      perform queues.check_lanes(namespace, 1);
    end if;
  end if;
  return _lane_id;
end
$$;

-- Returns the lane that a task with this queue, type and priority is enqueued to, or null: its own, else the one that
-- types share. The lane depends on whether there is a concurrency key, not on which. Under read committed nothing is
-- locked, because shared locks are expensive: tidy_lanes knows from transaction ids which transactions may have read a
-- lane, so the id must be assigned first. An old snapshot may show a lane that was removed: there the row is locked,
-- which then fails.
create or replace function queues.find_lane(
  queue text, type text, priority integer, concurrency_key text, namespace text default null)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _transaction_id constant xid8 := pg_current_xact_id();
  _lane_id bigint;
begin
  if find_lane.concurrency_key is null then
    foreach type in array array[type, ''] loop
      select l.lane_id into _lane_id from queues.lane l
      where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority
        and l.concurrency_key is null and l.leaving is null
      order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
      exit when found;
    end loop;
  else
    foreach type in array array[type, ''] loop
      select l.lane_id into _lane_id from queues.lane l
      where l.queue = find_lane.queue and l.type = find_lane.type and l.priority = find_lane.priority
        and l.concurrency_key = '' and l.leaving is null
      order by l.queue, l.type, l.priority, l.concurrency_key, l.lane_id limit 1;
      exit when found;
    end loop;
  end if;
  if _lane_id is not null and current_setting('transaction_isolation') <> 'read committed' then
    perform from queues.lane l where l.lane_id = _lane_id for key share;
  end if;
  return _lane_id;
end
$$;

-- Refuses more lanes than one namespace may use at once. A claim of a queue reads each of its lanes. Counting takes
-- time, so it is done for one in 64 new lanes, and for each once a namespace has too many.
-- Internal: called by enqueue after it has inserted lanes.
create or replace function queues.check_lanes(namespace text, made integer)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _known constant boolean := exists (select from queues.lane_hoarder h where h.namespace = check_lanes.namespace);
begin
  if not _known and random() * 64 >= made or not queues.hoards_lanes(namespace) then
    return;
  elsif made < 64 and not _known then
    insert into queues.lane_hoarder (namespace, noticed_at) values (namespace, queues.clock());
    return;
  end if;
  raise exception using errcode = 'QF429',
    message = format('tasks of namespace %s wait in too many combinations of queue, type and priority', namespace),
    hint = 'Use fewer queues, types and priorities at once, enqueue later, or raise max_lanes in queues.setting.';
end
$$;

-- Adds the route of a type for the login of the session, unless there are too many, or somebody is changing what it is
-- made of. Only under read committed: what an old snapshot shows is not the last change.
-- Internal: called by enqueue_simple after it found none. Locks: the lane's row, shared and without waiting.
create or replace function queues.add_route(type text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
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
