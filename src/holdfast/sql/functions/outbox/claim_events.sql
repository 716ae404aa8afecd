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

comment on function queues.claim_events(text, integer, integer, interval, text, text) is
  'Leases events of a subscription: of each aggregate the first one, and those that follow it in order.';
