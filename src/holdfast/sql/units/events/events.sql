-- The outbox and the inbox: events are written here with a delivery for each subscription that matches, and removed
-- when they are old. deliveries.sql sends them.
-- Invariant: an event and its deliveries are committed with the change that they describe, or not at all. Which
-- subscriptions get it is decided when it is emitted. An event of another system is received once per namespace, as
-- long as the inbox remembers it.
-- Lock order: emitting locks no existing row, except that of queues.event_order when the database has come to a new
-- cluster. Receiving waits for a transaction that has received the same event. Pruning skips locked rows.
-- At the same time: two transactions that emit about one aggregate do not wait for each other, and their events have no
-- order; if one begins after the other has committed, its events have higher numbers and are sent later. A subscription
-- that is added meanwhile gets the events that are emitted after it is visible. Deliveries that are written for a
-- subscription that is being removed are never claimed. A reader of the stream (tail_events) does not miss an event
-- that commits late: an event is final only if every transaction that could come before it has ended.

-- Emits an event in the caller's transaction and returns its id, which is the same in every delivery. Events of one
-- aggregate reach a subscription in the order in which they were emitted, if their transactions followed one another;
-- other events may overtake. Types that begin with task., worker. or subscription. are reserved for the engine.
-- For holdfast_client and holdfast_worker. Locks: none.
create or replace function queues.emit(
  event_type text,
  payload jsonb default '{}',
  aggregate_id text default null,
  subject text default null,
  source text default null,
  traceparent text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := queues.commit_to_disk();
  _event_id constant uuid := queues.new_task_id();
  _problem text;
begin
  perform queues.check_name('event_type', event_type);
  if split_part(event_type, '.', 1) in ('task', 'worker', 'subscription') then
    raise exception using errcode = 'QF403',
      message = format('event_type %s is reserved: only the engine emits task., worker. and subscription. events',
        to_json(event_type)),
      hint = 'Use another prefix, such as order.created.';
  end if;
  perform queues.check_attribute('aggregate_id', aggregate_id);
  perform queues.check_attribute('subject', subject);
  perform queues.check_attribute('source', source);
  if traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
    raise exception using errcode = 'QF400', message = format('traceparent %s is malformed', to_json(traceparent)),
      hint = 'Take it from the W3C trace context: 00-<32 hex digits>-<16 hex digits>-01';
  end if;
  if payload is null then
    raise exception using errcode = 'QF400', message = 'payload must not be null';
  end if;
  _problem := queues.document_problem(payload,
    (select s.value from queues.setting s where s.name = 'max_payload_bytes'));
  if _problem is not null then
    raise exception using message = format('payload %s', _problem),
      errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end;
  end if;
  perform queues.record_events(
    array[row(_event_id, event_type, aggregate_id, subject, source, null, null, traceparent,
      payload, null)::queues.new_event],
    queues.clock(), keep => true);
  return _event_id;
end
$$;

-- Refuses an attribute of an event that cannot be sent in a header: empty, too long, or with control characters. Null
-- is allowed.
create or replace function queues.check_attribute(field text, value text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if value = '' or octet_length(value) > 500 then
    raise exception using errcode = 'QF400', message = format('%s must be between 1 and 500 bytes long', field);
  elsif value ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception using errcode = 'QF400',
      message = format('%s %s contains control characters', field, to_json(value));
  end if;
end
$$;

-- Writes events and a delivery for each matching subscription, in the given order. Events without a matching
-- subscription are written only if they are to be kept. An event belongs to the namespace that it states, otherwise to
-- that of the session. Runs in the caller's transaction, so that rolled-back events are never sent, and late commits
-- are not overtaken by a cursor.
-- Internal: called by emit and for events of the engine.
create or replace function queues.record_events(batch queues.new_event[], now timestamptz, keep boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  _namespace constant text := queues.namespace();
  _transaction_id constant xid8 := (pg_current_xact_id()::text::bigint + queues.event_shift())::text::xid8;
  _asked integer[];
begin
  with given as materialized (
    select b.* from unnest(batch) with ordinality
      b(event_id, event_type, aggregate_id, subject, source, task_id, task_type, traceparent, data, namespace, n)
    order by b.n),
  event as materialized (
    select nextval('queues.event_number') as event_number, coalesce(g.namespace, _namespace) as owner, g.*
    from given g),
  asked as materialized (
    select s.subscription_id, e.owner, e.event_id, e.event_number,
      coalesce(e.aggregate_id, e.event_id::text) as aggregate_id
    from event e join queues.subscription s on s.removed_at is null
    where queues.is_subscribed(s.event_patterns, s.prefix_patterns, e.event_type, e.task_type)
      and (s.namespaces = '{}' or e.owner = any (s.namespaces))),
  outstanding as (
    insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at, due_at,
      attempt, counted)
    select a.subscription_id, a.owner, a.aggregate_id, a.event_number, a.event_id, record_events.now, record_events.now,
      0, false
    from asked a),
  written as (
    insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at, task_id, event_type,
      aggregate_id, subject, source, traceparent, emitted_by, namespace, deliveries, data)
    select e.event_id, e.event_number, _transaction_id, record_events.now, e.task_id, e.event_type,
      e.aggregate_id, e.subject, e.source, e.traceparent, session_user, e.owner, a.deliveries, e.data
    from event e
    cross join lateral (select count(*) as deliveries from asked a where a.event_id = e.event_id) a
    where keep or a.deliveries > 0)
  select array_agg(distinct a.subscription_id) into _asked from asked a;

  if _asked is not null then
    perform queues.wake_dispatchers(_asked);
  end if;
end
$$;

-- Returns what is added to the id of a transaction so that events stay in order when the database is restored into a
-- new cluster, or moved to one by logical replication: it counts transactions from the beginning. Events of the future
-- tell that; what is added then is raised, so that new events come after all others.
-- Internal: called by record_events, test_subscription and take_sample. Locks: the row of queues.event_order, once in
-- each new cluster.
create or replace function queues.event_shift()
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _at record;
  _shift bigint;
begin
  -- One statement, because every other one would see later transactions.
  select o.shift, pg_snapshot_xmin(s.now)::text::bigint as oldest, pg_snapshot_xmax(s.now)::text::bigint as next,
    greatest(o.newest, (
      select e.transaction_id::text::bigint from queues.outbox_event e
      order by e.transaction_id desc, e.event_number desc limit 1)) - o.shift as newest
  into _at from queues.event_order o, (select pg_current_snapshot() as now offset 0) s;
  -- Its own events may have an id that is not in its snapshot yet.
  if _at.newest < _at.next or _at.newest <= pg_current_xact_id()::text::bigint then
    return _at.shift;
  end if;
  update queues.event_order o set shift = _at.shift + _at.newest + 1 - _at.oldest where o.shift = _at.shift;
  select o.shift into _shift from queues.event_order o;
  return _shift;
end
$$;

-- Removes old delivered events, events without a subscription, dead events, and rests of ended subscriptions. Removes a
-- limited number of deliveries of each kind per call; returns how many events and deliveries it removed.
-- For holdfast_worker and holdfast_operator. Locks: the rows that it removes, without waiting.
create or replace function queues.prune_events(
  older_than interval default '7 days', dead_older_than interval default '30 days', max_events integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _now constant timestamptz := queues.clock();
  _left uuid[];
  _removed integer;
  _events integer;
begin
  if older_than is null or dead_older_than is null or older_than < '0' or dead_older_than < '0'
    or max_events is null or max_events not between 1 and 100000
  then
    raise exception using errcode = 'QF400',
      message = 'prune_events needs two ages that are not negative, and max_events between 1 and 100000';
  end if;
  with removed as materialized (select s.subscription_id from queues.subscription s where s.removed_at is not null),
  delivered as (
    delete from queues.delivered d
    where (d.event_id, d.subscription_id) in (
      select old.event_id, old.subscription_id from queues.delivered old where old.delivered_at < _now - older_than
      order by old.delivered_at limit max_events for update skip locked)
    returning d.event_id),
  dead as (
    delete from queues.dead_delivery d
    where (d.event_id, d.subscription_id) in (
      select old.event_id, old.subscription_id from queues.dead_delivery old where old.died_at < _now - dead_older_than
      order by old.died_at limit max_events for update skip locked)
    returning d.event_id),
  orphaned as (
    delete from queues.delivery d
    where (d.subscription_id, d.namespace, d.aggregate_id, d.event_number) in (
      select o.subscription_id, o.namespace, o.aggregate_id, o.event_number
      from queues.delivery o where o.subscription_id in (select r.subscription_id from removed r)
      limit max_events for update skip locked)
    returning d.event_id),
  orphaned_dead as (
    delete from queues.dead_delivery d
    where (d.event_id, d.subscription_id) in (
      select o.event_id, o.subscription_id from queues.dead_delivery o
      where o.subscription_id in (select r.subscription_id from removed r) and o.died_at >= _now - dead_older_than
      limit max_events for update skip locked)
    returning d.event_id),
  unasked as (
    select e.event_id from queues.outbox_event e where e.deliveries = 0 and e.occurred_at < _now - older_than
    order by e.occurred_at limit max_events),
  gone as (
    select d.event_id, 1 as removed from delivered d union all select d.event_id, 1 from dead d
    union all select o.event_id, 1 from orphaned o union all select o.event_id, 1 from orphaned_dead o
    union all select u.event_id, 0 from unasked u)
  select array_agg(distinct g.event_id), coalesce(sum(g.removed), 0) into _left, _removed from gone g;

  -- Separate statements, which see what is left.
  perform set_config('holdfast.retention', 'on', true);
  delete from queues.outbox_event e
  where e.event_id = any (_left)
    and (select true from queues.delivery d where d.event_id = e.event_id and e.deliveries > 0
      and d.namespace = e.namespace and d.aggregate_id = coalesce(e.aggregate_id, e.event_id::text)
      and d.event_number = e.event_number
      and d.subscription_id in (select s.subscription_id from queues.subscription s) limit 1) is null
    and (select true from queues.delivered d where d.event_id = e.event_id limit 1) is null
    and (select true from queues.dead_delivery d where d.event_id = e.event_id limit 1) is null;
  get diagnostics _events = row_count;
  perform set_config('holdfast.retention', _retention, true);
  delete from queues.subscription s
  where s.removed_at is not null
    and (select true from queues.delivery d where d.subscription_id = s.subscription_id limit 1) is null
    and (select true from queues.dead_delivery d where d.subscription_id = s.subscription_id limit 1) is null;
  delete from queues.breaker b
  where not exists (select from queues.subscription s where s.subscription_id = b.subscription_id);
  return _removed + _events;
end
$$;

-- Removes old received events, a limited number per call, and returns how many. If one of them is sent again, it counts
-- as new: keep them for longer than any sender retries.
-- For holdfast_worker and holdfast_operator. Locks: the rows that it removes, without waiting.
create or replace function queues.prune_inbox(older_than interval default '30 days', max_events integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _removed integer;
begin
  if older_than is null or older_than < '0' or max_events is null or max_events not between 1 and 100000 then
    raise exception using errcode = 'QF400',
      message = 'prune_inbox needs an age that is not negative, and max_events between 1 and 100000';
  end if;
  delete from queues.received_event r
  where (r.namespace, r.source, r.event_id) in (
    select old.namespace, old.source, old.event_id from queues.received_event old
    where old.received_at < queues.clock() - older_than
    order by old.received_at limit max_events for update skip locked);
  get diagnostics _removed = row_count;
  return _removed;
end
$$;

-- Records an event of another system and returns true the first time in this namespace, false for a duplicate. Runs in
-- the caller's transaction. Waits for another open transaction of the same namespace that has received the same event.
-- For holdfast_client and holdfast_worker. Locks: the event.
create or replace function queues.receive(event_id text, source text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if event_id is null or source is null then
    raise exception using errcode = 'QF400', message = 'event_id and source must not be null';
  end if;
  perform queues.check_attribute('event_id', event_id);
  perform queues.check_attribute('source', source);
  insert into queues.received_event (namespace, source, event_id, received_at)
  values (queues.namespace(), source, event_id, queues.clock()) on conflict do nothing;
  return found;
end
$$;

-- Emits events for tasks that have just ended or will be retried, if a subscription matches. Reads the rows that the
-- same transaction has written.
-- Internal: called by notify_waiters if there is a subscription to events of the engine.
create or replace function queues.emit_task_events(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _wanted text[];
  _batch queues.new_event[];
begin
  select array_agg(known.event_type) into _wanted from unnest(queues.engine_event_types()) known(event_type)
  where exists (
    select from queues.subscription s where s.engine_events
      and queues.is_subscribed(s.event_patterns, '{}', known.event_type, null));
  if _wanted is null then
    return;
  end if;

  select array_agg(row(queues.new_task_id(), fact.event_type, t.task_id::text, t.task_id::text, null, t.task_id, t.type,
      case when t.metadata ->> 'traceparent' ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
        then t.metadata ->> 'traceparent' end,
      jsonb_strip_nulls(jsonb_build_object('task_id', t.task_id, 'type', t.type, 'queue', t.queue,
        'status', fact.status, 'attempt', fact.attempt, 'max_attempts', t.max_attempts,
        'idempotency_key', t.idempotency_key, 'worker_id', fact.worker_id,
        'created_at', t.created_at, 'started_at', fact.started_at, 'finished_at', fact.finished_at,
        'retry_at', fact.retry_at, 'reason', left(fact.reason, 2000),
        'error', case when fact.kind is not null then jsonb_build_object('kind', fact.kind,
          'message', left(fact.message, 2000)) end)), t.namespace
    )::queues.new_event order by given.n, fact.rank) into _batch
  from unnest(task_ids) with ordinality given(task_id, n)
  cross join lateral (select t.* from queues.task t where t.task_id = given.task_id offset 0) t
  cross join lateral (
    select v.event_type, v.rank, o.status, o.attempt, o.worker_id, o.started_at, o.finished_at,
      null::timestamptz as retry_at, o.reason, e.kind, e.message
    from queues.outcome o
    left join lateral (
      select e.kind, e.message from queues.error e
      where o.status <> 'succeeded' and e.task_id = o.task_id and e.occurred_at = o.finished_at
        and e.step is null
      order by e.error_id desc limit 1) e on true
    cross join lateral (values (1, case when e.kind = 'no_handler_registered' then 'task.no_handler' end),
      (2, 'task.' || o.status))
      v(rank, event_type)
    where o.task_id = given.task_id
    union all
    -- The times match if this error, and not an older one, made the task ready again.
    select 'task.retrying', 1, 'retrying', e.attempt, e.worker_id, e.started_at, null, e.retry_at, null,
      e.kind, e.message
    from queues.ready r
    cross join lateral (
      select e.* from queues.error e where e.task_id = r.task_id and e.step is null order by e.error_id desc limit 1) e
    where r.task_id = given.task_id and r.run_at = e.retry_at and 'task.retrying' = any (_wanted)) fact
  where fact.event_type = any (_wanted);

  if _batch is not null then
    perform queues.record_events(_batch, _now, keep => false);
  end if;
end
$$;

-- Returns the types of events that the engine itself emits. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.engine_event_types()
returns text[]
language sql immutable parallel safe
as $$
  select array['task.succeeded', 'task.failed', 'task.no_handler', 'task.dead_letter', 'task.cancelled',
    'task.retrying', 'worker.lost']
$$;

-- Emits worker.lost for a lost worker, if a subscription matches.
-- Internal: called by recover_workers after it has removed the worker from the registry.
create or replace function queues.emit_worker_lost(worker_id text, last_heartbeat timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.subscription s where s.engine_events
    and queues.is_subscribed(s.event_patterns, '{}', 'worker.lost', null))
  then
    perform queues.record_events(
      array[row(queues.new_task_id(), 'worker.lost', l.worker_id, l.worker_id, null, null, null, null,
        jsonb_build_object('worker_id', l.worker_id, 'hostname', l.hostname, 'last_heartbeat', l.last_heartbeat,
          'recovered', l.recovered, 'dead', l.dead), null)::queues.new_event],
      queues.clock(), keep => false)
    from queues.loss l where l.worker_id = emit_worker_lost.worker_id
      and l.last_heartbeat = emit_worker_lost.last_heartbeat;
  end if;
end
$$;

-- Returns events in the order in which they became visible, from a position on; without one, the newest. "final" means
-- that no earlier event will become visible: a reader continues from the last final event, and remembers which later
-- ones it has seen, because an open transaction may have an earlier number.
-- For holdfast_reader and holdfast_client. Locks: none.
create or replace function queues.tail_events(
  after_transaction bigint default null, after_number bigint default null, max_events integer default 100)
returns table (
  event_id uuid, event_type text, occurred_at timestamptz, aggregate_id text, subject text, task_id uuid, data jsonb,
  delivered bigint, dead bigint, deliveries integer, transaction_id bigint, event_number bigint, final boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _open constant xid8 := (select (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + o.shift)::text::xid8
    from queues.event_order o);
  _all constant boolean := queues.may_read_all();
  _namespace constant text := queues.namespace();
begin
  perform queues.check_number('max_events', max_events, 1, 10000);
  -- Not from the view queues.event_status, which has no order before it is read to the end.
  return query
  with chosen as materialized (
    (select e.* from queues.outbox_event e
    where after_transaction is null
      and (_all or e.namespace = _namespace)
    order by e.transaction_id desc, e.event_number desc limit case when after_transaction is null then max_events end)
    union all
    (select e.* from queues.outbox_event e
    where (e.transaction_id, e.event_number) > (after_transaction::text::xid8, coalesce(after_number, 0))
      and (_all or e.namespace = _namespace)
    order by e.transaction_id, e.event_number limit max_events))
  select e.event_id, e.event_type, e.occurred_at, e.aggregate_id, coalesce(e.subject, e.aggregate_id), e.task_id,
    e.data, (select count(*) from queues.delivered d where d.event_id = e.event_id),
    (select count(*) from queues.dead_delivery d where d.event_id = e.event_id),
    e.deliveries, e.transaction_id::text::bigint, e.event_number, e.transaction_id < _open
  from chosen e order by e.transaction_id, e.event_number;
end
$$;
