-- Delivery of events: dispatchers claim the events of a subscription, send them and report what became of them. A
-- breaker protects a receiver that fails.
-- Invariant: until it is pruned, an event has one row per subscription that gets it: outstanding, delivered or dead. Of
-- each aggregate of a namespace, only the first outstanding event is claimed, with those that follow it without a gap,
-- and none while a lease on one of them is valid. So a receiver gets them in order, perhaps more than once; only
-- redriven ones come late.
-- Lock order: to claim: first deliveries, breakers, then the deliveries that follow, all without waiting. To settle:
-- deliveries by subscription, namespace, aggregate and number, waiting; then breakers, skipping locked ones. To
-- redrive: the subscription, then its dead deliveries.
-- At the same time: a dispatcher whose lease has ended may still send; another one then sends the same event again, and
-- only the report with the current token counts. An event that commits late with an earlier number waits until those
-- behind it that are being sent are settled. A breaker that is to be probed is moved by one claim; others send nothing
-- of that namespace meanwhile.

-- Leases events of a subscription: of each aggregate of a namespace the first one, and those that follow it in order.
-- One dispatcher thus sends the events of an aggregate one after another. Returns nothing while the subscription is
-- paused, none of a namespace whose breaker is open, and one when its breaker is probed. "after_namespace" and
-- "after_aggregate" are where the dispatcher's last claim ended; the claim continues from there and then from the
-- beginning.
-- For holdfast_dispatcher. Locks: the first deliveries of aggregates, the breakers, then the deliveries that follow,
-- without waiting.
create or replace function queues.claim_events(
  dispatcher_id text,
  subscription_id integer,
  max_events integer default 100,
  lease interval default '1 minute',
  after_namespace text default '',
  after_aggregate text default '')
returns table (
  event_id uuid, token bigint, attempt integer, namespace text, aggregate_id text, event_type text, source text,
  subject text, occurred_at timestamptz, traceparent text, data jsonb, lease_until timestamptz)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_dispatch(dispatcher_id, max_events, lease);
  _now constant timestamptz := queues.clock();
  _token constant bigint := nextval('queues.token');
  _max_attempts integer;
  _shut text[];
  _probed text[];
  _namespaces text[];
  _aggregates text[];
  _numbers bigint[];
  _worn boolean;
begin
  select s.max_attempts into _max_attempts from queues.subscription s
  where s.subscription_id = claim_events.subscription_id and s.removed_at is null and s.paused_at is null;
  if not found then
    return;
  end if;
  select coalesce(array_agg(b.namespace) filter (where b.open_until > _now), '{}'),
    array_agg(b.namespace) filter (where b.open_until <= _now)
  into _shut, _probed
  from queues.breaker b where b.subscription_id = claim_events.subscription_id and b.open_until is not null;

  select array_agg(h.namespace), array_agg(h.aggregate_id), array_agg(h.event_number),
    bool_or(h.attempt >= _max_attempts)
  into _namespaces, _aggregates, _numbers, _worn
  from (
    select h.* from queues.lock_first_deliveries(subscription_id, _shut, coalesce(after_namespace, ''),
      coalesce(after_aggregate, ''), null, null, _now, max_events) h
    union all
    select h.* from queues.lock_first_deliveries(subscription_id, _shut, '', '', after_namespace, after_aggregate, _now,
      max_events) h
    where (after_namespace, after_aggregate) <> ('', '')
    limit max_events) h;
  if _aggregates is null then
    return;
  end if;
  if _namespaces && _probed then
    -- A second claim finds the breaker open again, until the probe was reported or its lease has ended. Of a namespace
    -- that is probed, one event is sent, and none if another claim probes it.
    with probe as (
      update queues.breaker b set open_until = _now + lease, probe_token = _token
      where b.subscription_id = claim_events.subscription_id and b.namespace in (
        select free.namespace from queues.breaker free
        where free.subscription_id = claim_events.subscription_id and free.namespace = any (_namespaces)
          and free.open_until <= _now for update skip locked)
      returning b.namespace)
    select array_agg(h.namespace), array_agg(h.aggregate_id), array_agg(h.event_number)
    into _namespaces, _aggregates, _numbers
    from (
      select h.*, row_number() over (partition by h.namespace order by h.n) as turn
      from unnest(_namespaces, _aggregates, _numbers) with ordinality h(namespace, aggregate_id, event_number, n)) h
    where h.namespace <> all (_probed)
      or h.turn = 1 and exists (select from probe p where p.namespace = h.namespace);
    if _aggregates is null then
      return;
    end if;
  end if;
  if _worn then
    perform queues.end_exhausted_deliveries(subscription_id, _namespaces, _aggregates, _numbers, _max_attempts, _now);
  end if;

  return query
  with run as materialized (
    select r.namespace, r.aggregate_id, r.event_number, r.place
    from unnest(_namespaces, _aggregates, _numbers) head(namespace, aggregate_id, event_number)
    cross join lateral (
      select d.namespace, d.aggregate_id, d.event_number, row_number() over follows as place,
        bool_and(d.due_at <= _now and coalesce(d.lease_until < _now, true)) over follows as free,
        bool_or(d.event_number = head.event_number) over () as first_there,
        -- An event that committed late may precede others that are being sent.
        bool_or(coalesce(d.lease_until >= _now, false)) over () as busy
      from (
        select d.* from queues.delivery d
        where d.subscription_id = claim_events.subscription_id and d.namespace = head.namespace
          and d.aggregate_id = head.aggregate_id and d.event_number >= head.event_number
        order by d.event_number limit greatest(10, max_events / cardinality(_numbers))) d
      window follows as (order by d.event_number)) r
    where r.free and r.first_there and not r.busy
      and r.place <= case when r.namespace = any (_probed) then 1
        else greatest(1, max_events / cardinality(_numbers)) end),
  -- Skips deliveries that a dispatcher is settling after its lease: waiting for them while holding rows that it waits
  -- for would deadlock.
  locked as materialized (
    select r.namespace, r.aggregate_id, r.event_number, r.place
    from run r
    cross join lateral (
      select from queues.delivery d
      where d.subscription_id = claim_events.subscription_id and d.namespace = r.namespace
        and d.aggregate_id = r.aggregate_id and d.event_number = r.event_number
        and d.due_at <= _now and (d.lease_until is null or d.lease_until < _now)
      for update skip locked) d),
  -- Up to the first skipped delivery: no event may overtake it.
  taken as materialized (
    select l.namespace, l.aggregate_id, l.event_number, l.place
    from (
      select l.*, row_number() over (partition by l.namespace, l.aggregate_id order by l.place) as rank
      from locked l) l
    where l.rank = l.place),
  held as (
    update queues.delivery d
    set token = _token, lease_until = _now + lease, dispatcher_id = claim_events.dispatcher_id,
      attempt = d.attempt + (r.place = 1)::integer, counted = r.place = 1
    from taken r
    where d.subscription_id = claim_events.subscription_id and d.namespace = r.namespace
      and d.aggregate_id = r.aggregate_id and d.event_number = r.event_number
    returning d.event_id, d.namespace, d.aggregate_id, d.event_number, d.attempt + (not d.counted)::integer as attempt)
  select h.event_id, _token, h.attempt, h.namespace, h.aggregate_id, e.event_type,
    coalesce(e.source, '/holdfast/' || current_database()), coalesce(e.subject, e.aggregate_id), e.occurred_at,
    e.traceparent, e.data, _now + lease
  from held h
  cross join lateral (select e.* from queues.outbox_event e where e.event_id = h.event_id offset 0) e
  order by h.namespace, h.aggregate_id, h.event_number;
end
$$;

-- Raises QF400 if the arguments of a dispatcher's call are invalid. Returns true, so that a declaration can call it.
create or replace function queues.check_dispatch(dispatcher_id text, max_events integer, lease interval)
returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  _problem := case
    when dispatcher_id is null or dispatcher_id = '' or octet_length(dispatcher_id) > 200
      then 'dispatcher_id must be between 1 and 200 bytes long'
    when max_events is null or max_events not between 1 and 10000 then 'max_events must be between 1 and 10000'
    when lease is null or lease not between interval '1 second' and interval '1 day'
      then 'lease must be between 1 second and 1 day'
  end;
  if _problem is not null then
    raise exception using errcode = 'QF400', message = _problem;
  end if;
  return true;
end
$$;

-- Locks the first outstanding delivery of each aggregate that may be claimed, in the order of namespaces and
-- aggregates, except those of the namespaces that are shut. Skips from one aggregate to the next in the index, so that
-- neither long queues behind a head nor deleted rows cost anything, and over a namespace that is shut at once.
-- Internal: called by claim_events. Locks: deliveries, without waiting.
create or replace function queues.lock_first_deliveries(
  subscription_id integer, shut text[], from_namespace text, from_aggregate text, up_to_namespace text,
  up_to_aggregate text, now timestamptz, max_heads integer)
returns table (namespace text, aggregate_id text, event_number bigint, attempt integer)
language plpgsql volatile rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  with recursive head as (
    (select d.namespace, d.aggregate_id, d.event_number, d.due_at, d.lease_until, d.namespace = any (shut) as is_shut
     from queues.delivery d
     where d.subscription_id = lock_first_deliveries.subscription_id
       and (d.namespace, d.aggregate_id) > (from_namespace, from_aggregate)
     order by d.namespace, d.aggregate_id, d.event_number limit 1)
    union all
    select next.namespace, next.aggregate_id, next.event_number, next.due_at, next.lease_until,
      next.namespace = any (shut)
    from head h
    cross join lateral (
      (select d.namespace, d.aggregate_id, d.event_number, d.due_at, d.lease_until from queues.delivery d
       where d.subscription_id = lock_first_deliveries.subscription_id and not h.is_shut
         and (d.namespace, d.aggregate_id) > (h.namespace, h.aggregate_id)
       order by d.namespace, d.aggregate_id, d.event_number limit 1)
      union all
      (select d.namespace, d.aggregate_id, d.event_number, d.due_at, d.lease_until from queues.delivery d
       where d.subscription_id = lock_first_deliveries.subscription_id and h.is_shut and d.namespace > h.namespace
       order by d.namespace, d.aggregate_id, d.event_number limit 1)) next
    where up_to_namespace is null or (h.namespace, h.aggregate_id) < (up_to_namespace, up_to_aggregate)),
  free as materialized (
    select h.namespace, h.aggregate_id, h.event_number from head h
    where not h.is_shut and h.due_at <= lock_first_deliveries.now
      and (h.lease_until is null or h.lease_until < lock_first_deliveries.now)
      and (up_to_namespace is null or (h.namespace, h.aggregate_id) <= (up_to_namespace, up_to_aggregate))
    limit max_heads)
  select locked.namespace, locked.aggregate_id, locked.event_number, locked.attempt
  from free f
  cross join lateral (
    select d.namespace, d.aggregate_id, d.event_number, d.attempt from queues.delivery d
    where d.subscription_id = lock_first_deliveries.subscription_id and d.namespace = f.namespace
      and d.aggregate_id = f.aggregate_id and d.event_number = f.event_number
      and d.due_at <= lock_first_deliveries.now and (d.lease_until is null or d.lease_until < lock_first_deliveries.now)
    for update skip locked) locked;
end
$$;

-- Declares events dead that were claimed max_attempts times without a report. They may have killed their dispatchers.
-- Internal: called by claim_events, which holds their locks.
create or replace function queues.end_exhausted_deliveries(
  subscription_id integer, namespaces text[], aggregates text[], numbers bigint[], max_attempts integer,
  now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with gone as (
    delete from queues.delivery d
    using unnest(namespaces, aggregates, numbers) worn(namespace, aggregate_id, event_number)
    where d.subscription_id = end_exhausted_deliveries.subscription_id and d.namespace = worn.namespace
      and d.aggregate_id = worn.aggregate_id and d.event_number = worn.event_number
      and d.attempt >= end_exhausted_deliveries.max_attempts
    returning d.event_id, d.attempt, d.last_error)
  insert into queues.dead_delivery (event_id, subscription_id, died_at, attempt, last_error)
  select g.event_id, end_exhausted_deliveries.subscription_id, end_exhausted_deliveries.now, g.attempt,
    coalesce(g.last_error || '; ', '') || 'the dispatcher ended without a report'
  from gone g
$$;

-- Settles claimed events and returns a verdict for each: accepted, already_done or lost. Each result is checked against
-- its token, so a dispatcher that lost its lease changes nothing. A failed event is retried after a delay that doubles
-- from a second to an hour with jitter, or that the receiver chose, and is dead when its attempts are used up; a
-- rejected one is dead at once; a released one has used no attempt.
-- For holdfast_dispatcher. Locks: deliveries in the order of subscription, namespace, aggregate and number; then the
-- breakers, without waiting.
create or replace function queues.settle_events(dispatcher_id text, results jsonb)
returns table (subscription_id integer, event_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('results', results);
  _now constant timestamptz := queues.clock();
  _accepted integer[];
  _reports queues.delivery_report[];
begin
  with given as materialized (
    select r.n::integer as n, r.subscription_id, r.event_id, r.token, r.status, left(r.error, 2000) as error, r.delay,
      e.namespace, e.event_number, coalesce(e.aggregate_id, e.event_id::text) as aggregate_id
    from rows from (jsonb_to_recordset(results) as (
        subscription_id integer, event_id uuid, token bigint, status text, error text, delay double precision))
      with ordinality r(subscription_id, event_id, token, status, error, delay, n)
    cross join lateral (
      select e.event_id, e.namespace, e.event_number, e.aggregate_id from queues.outbox_event e
      where e.event_id = r.event_id offset 0) e
    where r.status in ('delivered', 'failed', 'rejected', 'released')
    order by r.subscription_id, e.namespace, coalesce(e.aggregate_id, e.event_id::text), e.event_number),
  held as materialized (
    select g.*, d.attempt + (not d.counted)::integer as used, d.attempt - d.counted::integer as unused
    from given g
    cross join lateral (
      select d.attempt, d.counted from queues.delivery d
      where d.subscription_id = g.subscription_id and d.namespace = g.namespace
        and d.aggregate_id = g.aggregate_id and d.event_number = g.event_number
        and d.token = g.token and d.dispatcher_id = settle_events.dispatcher_id
      for update) d),
  settled as materialized (
    select h.*, case when h.status = 'rejected' or h.status = 'failed' and h.used >= s.max_attempts then 'dead'
      else h.status end as fate
    from held h
    cross join lateral (
      select s.max_attempts from queues.subscription s where s.subscription_id = h.subscription_id offset 0) s),
  gone as (
    delete from queues.delivery d using settled s
    where s.fate in ('delivered', 'dead')
      and d.subscription_id = s.subscription_id and d.namespace = s.namespace
      and d.aggregate_id = s.aggregate_id and d.event_number = s.event_number),
  arrived as (
    insert into queues.delivered (event_id, subscription_id, delivered_at, attempt, dispatcher_id)
    select s.event_id, s.subscription_id, _now, s.used, settle_events.dispatcher_id from settled s
    where s.fate = 'delivered'
    on conflict do nothing),
  died as (
    insert into queues.dead_delivery (event_id, subscription_id, died_at, attempt, last_error)
    select s.event_id, s.subscription_id, _now, s.used, s.error from settled s where s.fate = 'dead'),
  waiting as (
    update queues.delivery d
    set token = null, lease_until = null, dispatcher_id = null, counted = false,
      attempt = case s.fate when 'failed' then s.used else s.unused end,
      last_error = coalesce(s.error, d.last_error),
      due_at = case when s.fate = 'released' then d.due_at
        when s.delay between 0 and 86400 then _now + s.delay * interval '1 second'
        else _now + least(3600, 2 ^ least(s.used - 1, 20)) * (1 + random() / 2) * interval '1 second' end
    from settled s
    where s.fate in ('failed', 'released')
      and d.subscription_id = s.subscription_id and d.namespace = s.namespace
      and d.aggregate_id = s.aggregate_id and d.event_number = s.event_number)
  select array_agg(s.n),
    array_agg(row(s.subscription_id, s.namespace, s.token, s.status, s.error)::queues.delivery_report)
  into _accepted, _reports from settled s;

  if _accepted is not null then
    perform queues.count_delivery_failures(_reports, _now);
  end if;
  return query
  select r.subscription_id, r.event_id, case
      when r.n = any (_accepted) then 'accepted'
      when (select true from queues.delivered d
        where d.event_id = r.event_id and d.subscription_id = r.subscription_id limit 1) then 'already_done'
      else 'lost' end
  from rows from (jsonb_to_recordset(results) as (subscription_id integer, event_id uuid))
    with ordinality r(subscription_id, event_id, n)
  order by r.n;
end
$$;

-- Opens the breaker of a subscription for a namespace after five consecutive failures of its events, for longer each
-- time; a success closes it. Failures that are reported while it is open were sent before, and do not extend it; that
-- of a probe does. Events of other namespaces are still sent: one may emit what the receiver cannot take. Skips a
-- breaker that an open call of resume_subscription has locked: reports about other subscriptions must not wait for it.
-- Internal: called by settle_events. Locks: the breakers, without waiting.
create or replace function queues.count_delivery_failures(reports queues.delivery_report[], now timestamptz)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into queues.breaker (subscription_id, namespace, failures, openings)
  select distinct r.subscription_id, r.namespace, 0, 0 from unnest(reports) r where r.status = 'failed'
    and not exists (
      select from queues.breaker b where b.subscription_id = r.subscription_id and b.namespace = r.namespace)
  order by 1, 2
  on conflict do nothing;

  with heard as materialized (
    select r.subscription_id, r.namespace, bool_or(r.status = 'delivered') as works,
      count(*) filter (where r.status = 'failed')::integer as failures,
      array_agg(r.token) as tokens, max(r.error) filter (where r.status = 'failed') as error
    from unnest(reports) r group by r.subscription_id, r.namespace order by r.subscription_id, r.namespace),
  held as materialized (
    select b.*, h.works, h.failures as new_failures, h.error, b.probe_token = any (h.tokens) as probed
    from heard h cross join lateral (
      select b.* from queues.breaker b where b.subscription_id = h.subscription_id and b.namespace = h.namespace
      for update skip locked) b
    where h.failures > 0 or b.failures > 0 or b.open_until is not null),
  judged as (
    select h.*, not h.works and h.failures + h.new_failures >= 5 and h.new_failures > 0
      and (h.open_until is null or h.open_until <= now or coalesce(h.probed, false)) as trips
    from held h)
  update queues.breaker b
  set failures = case when j.works then 0 else j.failures + j.new_failures end,
    openings = case when j.works then 0 else j.openings + j.trips::integer end,
    open_until = case when j.works then null
      when j.trips then now + queues.backoff(j.openings + 1)
      when j.probed then now  -- released unsent: the next claim may probe
      else j.open_until end,
    probe_token = case when j.works or j.trips or j.probed then null else j.probe_token end,
    last_failure_at = case when j.new_failures > 0 then now else j.last_failure_at end,
    last_error = coalesce(j.error, j.last_error)
  from judged j where b.subscription_id = j.subscription_id and b.namespace = j.namespace
$$;

-- Returns deliveries of a subscription: those that failed for good (dead), newest first; the outstanding ones, with the
-- most attempts first, of the first 1,000; or those that were delivered, newest first, of the last 1,000 of all
-- subscriptions.
-- For holdfast_reader. Locks: nothing.
create or replace function queues.list_deliveries(
  name text, of_status text default 'dead', max_deliveries integer default 100)
returns table (
  event_id uuid, event_type text, subject text, task_id uuid, occurred_at timestamptz, status text, attempt integer,
  due_at timestamptz, settled_at timestamptz, last_error text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := (
    select s.subscription_id from queues.subscription s where s.name = list_deliveries.name and s.removed_at is null);
  _now constant timestamptz := queues.clock();
begin
  if _subscription_id is null then
    raise exception using errcode = 'QF404',
      message = format('there is no subscription %s', coalesce(to_json(name)::text, 'null')),
      hint = 'holdfast events list shows the existing ones.';
  end if;
  perform queues.check_number('max_deliveries', max_deliveries, 1, 1000);
  if of_status = 'dead' then
    return query
    select e.event_id, e.event_type, coalesce(e.subject, e.aggregate_id), e.task_id, e.occurred_at, 'dead', d.attempt,
      null::timestamptz, d.died_at, d.last_error
    from (
      select d.event_id, d.attempt, d.died_at, d.last_error from queues.dead_delivery d
      where d.subscription_id = _subscription_id order by d.died_at desc limit max_deliveries) d
    join queues.outbox_event e on e.event_id = d.event_id
    order by d.died_at desc, d.event_id;
  elsif of_status = 'outstanding' then
    return query
    select e.event_id, e.event_type, coalesce(e.subject, e.aggregate_id), e.task_id, e.occurred_at,
      case when d.lease_until >= _now then 'in_flight' when d.attempt > 0 then 'retrying' else 'waiting' end,
      d.attempt, d.due_at, null::timestamptz, d.last_error
    from (
      select o.* from (
        select d.* from queues.delivery d where d.subscription_id = _subscription_id
        order by d.subscription_id, d.namespace, d.aggregate_id, d.event_number limit 1000) o
      order by o.attempt desc, o.emitted_at limit max_deliveries) d
    join queues.outbox_event e on e.event_id = d.event_id
    order by d.attempt desc, d.emitted_at, d.event_id;
  elsif of_status = 'delivered' then
    return query
    select e.event_id, e.event_type, coalesce(e.subject, e.aggregate_id), e.task_id, e.occurred_at, 'delivered',
      d.attempt, null::timestamptz, d.delivered_at, null::text
    from (
      select o.* from (
        select d.* from queues.delivered d order by d.delivered_at desc limit 1000) o
      where o.subscription_id = _subscription_id order by o.delivered_at desc limit max_deliveries) d
    join queues.outbox_event e on e.event_id = d.event_id
    order by d.delivered_at desc, d.event_id;
  else
    raise exception using errcode = 'QF400', message = 'of_status must be dead, outstanding or delivered';
  end if;
end
$$;

-- Gives dead events of a subscription, the oldest first, a new set of attempts, and returns how many. With died_until,
-- only those that had died by then. With event_id, only this event, which may also have been delivered already. Their
-- order is lost: later events of their aggregate have been sent meanwhile.
-- For holdfast_operator. Locks: the subscription, then the deliveries.
create or replace function queues.redrive_events(
  name text, event_id uuid default null, max_events integer default 1000, reason text default null,
  died_until timestamptz default null)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
  _now constant timestamptz := queues.clock();
  _redriven integer;
begin
  perform queues.check_number('max_events', max_events, 1, 10000);
  with chosen as materialized (
    select d.event_id from queues.dead_delivery d
    where d.subscription_id = _subscription_id
      and (redrive_events.event_id is null or d.event_id = redrive_events.event_id)
      and (died_until is null or d.died_at <= died_until)
    order by d.died_at limit max_events for update),
  revived as (
    delete from queues.dead_delivery d using chosen c
    where d.event_id = c.event_id and d.subscription_id = _subscription_id returning d.event_id, d.last_error),
  repeated as (
    delete from queues.delivered d
    where d.event_id = redrive_events.event_id and d.subscription_id = _subscription_id returning d.event_id)
  insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at, due_at,
    attempt, counted, last_error)
  select _subscription_id, e.namespace, coalesce(e.aggregate_id, e.event_id::text), e.event_number, e.event_id,
    e.occurred_at, _now, 0, false, r.last_error
  from (select r.event_id, r.last_error from revived r union all select r.event_id, null from repeated r) r
  join queues.outbox_event e on e.event_id = r.event_id;
  get diagnostics _redriven = row_count;
  if _redriven > 0 then
    insert into queues.subscription_act (subscription, act, occurred_at, actor, reason, event_id, events)
    values (name, 'redriven', _now, queues.actor(), left(reason, 2000), redrive_events.event_id, _redriven);
    perform queues.wake_dispatchers(array[_subscription_id]);
  end if;
  return _redriven;
end
$$;

-- Notifies dispatchers that wait for one of these subscriptions; without subscriptions, all that wait. Sends nothing if
-- none waits. A notification is only a hint: a dispatcher that misses it polls.
create or replace function queues.wake_dispatchers(subscription_ids integer[] default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.dispatcher d where coalesce(d.waiting && subscription_ids, true))
    and queues.may_notify()
  then
    perform pg_notify('holdfast_outbox', '');
  end if;
end
$$;

-- Records a dispatcher's heartbeat, and returns the subscriptions to serve, with their secrets. The dispatcher states
-- for which subscriptions it waits to be woken, which sinks it knows and which subscriptions it cannot serve (an object
-- of reasons by subscription_id). Returns every subscription, and whether it may have events now.
-- For holdfast_dispatcher. Locks: the dispatcher's row.
create or replace function queues.dispatcher_heartbeat(
  dispatcher_id text,
  waiting integer[] default '{}',
  hostname text default 'unknown',
  pid integer default null,
  version text default null,
  sinks text[] default '{}',
  unusable jsonb default '{}')
returns table (
  subscription_id integer, name text, sink text, target text, options jsonb, secrets text[], outstanding boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  perform queues.check_dispatch(dispatcher_id, 1, interval '1 minute');
  if unusable is not null and (jsonb_typeof(unusable) <> 'object' or pg_column_size(unusable) > 1000000) then
    raise exception using errcode = 'QF400', message = 'unusable must be an object of reasons by subscription_id';
  end if;
  insert into queues.dispatcher as d (dispatcher_id, hostname, pid, version, waiting, sinks, unusable,
    started_at, last_seen)
  values (dispatcher_id, coalesce(hostname, 'unknown'), pid, version, coalesce(dispatcher_heartbeat.waiting, '{}'),
    coalesce(dispatcher_heartbeat.sinks, '{}'), coalesce(dispatcher_heartbeat.unusable, '{}'), _now, _now)
  on conflict (dispatcher_id) do update
  set waiting = excluded.waiting, sinks = excluded.sinks, unusable = excluded.unusable, last_seen = excluded.last_seen;
  return query
  select s.subscription_id, s.name, s.sink, s.target, s.options, s.secrets,
    s.paused_at is null
      and (select true from queues.delivery d where d.subscription_id = s.subscription_id limit 1) is not null
  from queues.subscription s
  where s.removed_at is null order by s.subscription_id;
end
$$;

-- Removes a dispatcher from the registry and returns whether it was registered. Also removes dispatchers that were
-- silent for an hour. Its leases are not changed: it releases them itself, or they end.
-- For holdfast_dispatcher. Locks: the dispatchers' rows.
create or replace function queues.retire_dispatcher(dispatcher_id text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from queues.dispatcher d
  where d.dispatcher_id in (
    select silent.dispatcher_id from queues.dispatcher silent
    where silent.last_seen < queues.clock() - interval '1 hour' for update skip locked);
  delete from queues.dispatcher d where d.dispatcher_id = retire_dispatcher.dispatcher_id;
  return found;
end
$$;
