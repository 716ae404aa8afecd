-- Leases events of a subscription: of each aggregate the first one, and those that follow it in order. One dispatcher
-- thus sends the events of an aggregate one after another. Returns nothing while the subscription is paused or its
-- breaker is open, and one event when the breaker is probed. "after_aggregate" is the aggregate at which the
-- dispatcher's last claim ended; the claim continues from there and then from the beginning.
-- For holdfast_dispatcher. Locks: the first deliveries of aggregates, the breaker, then the deliveries that follow,
-- without waiting.
create or replace function queues.claim_events(
  dispatcher_id text,
  subscription_id integer,
  max_events integer default 100,
  lease interval default '1 minute',
  after_aggregate text default '')
returns table (
  event_id uuid, token bigint, attempt integer, aggregate_id text, event_type text, source text, subject text,
  occurred_at timestamptz, traceparent text, data jsonb, lease_until timestamptz)
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
  -- Losing a claim in a crash loses nothing: the events are still outstanding.
  _hasty constant boolean := queues.allow_async_commit();
  _now constant timestamptz := queues.clock();
  _token constant bigint := nextval('queues.token');
  _max_attempts integer;
  _open_until timestamptz;
  _aggregates text[];
  _numbers bigint[];
  _worn boolean;
begin
  select s.max_attempts, b.open_until into _max_attempts, _open_until
  from queues.subscription s join queues.breaker b on b.subscription_id = s.subscription_id
  where s.subscription_id = claim_events.subscription_id and s.removed_at is null and s.paused_at is null;
  if not found or _open_until > _now then
    return;
  elsif _open_until is not null then
    max_events := 1;
  end if;

  select array_agg(h.aggregate_id), array_agg(h.event_number), bool_or(h.attempt >= _max_attempts)
  into _aggregates, _numbers, _worn
  from (
    select h.* from queues.lock_first_deliveries(subscription_id, coalesce(after_aggregate, ''), null, _now,
      max_events) h
    union all
    select h.* from queues.lock_first_deliveries(subscription_id, '', after_aggregate, _now, max_events) h
    where after_aggregate <> ''
    limit max_events) h;
  if _aggregates is null then
    return;
  end if;
  if _open_until is not null then
    -- A second claim finds it open again, until the probe was reported or its lease has ended.
    update queues.breaker b set open_until = _now + lease, probe_token = _token
    where b.subscription_id in (
      select free.subscription_id from queues.breaker free
      where free.subscription_id = claim_events.subscription_id and free.open_until <= _now for update skip locked);
    if not found then
      return;
    end if;
  end if;
  if _worn then
    perform queues.end_exhausted_deliveries(subscription_id, _aggregates, _numbers, _max_attempts, _now);
  end if;

  return query
  with run as materialized (
    select r.aggregate_id, r.event_number, r.place
    from unnest(_aggregates, _numbers) head(aggregate_id, event_number)
    cross join lateral (
      select d.aggregate_id, d.event_number, row_number() over follows as place,
        bool_and(d.due_at <= _now and coalesce(d.lease_until < _now, true)) over follows as free,
        bool_or(d.event_number = head.event_number) over () as first_there,
        -- An event that committed late may precede others that are being sent.
        bool_or(coalesce(d.lease_until >= _now, false)) over () as busy
      from (
        select d.* from queues.delivery d
        where d.subscription_id = claim_events.subscription_id and d.aggregate_id = head.aggregate_id
          and d.event_number >= head.event_number
        order by d.event_number limit greatest(10, max_events / cardinality(_numbers))) d
      window follows as (order by d.event_number)) r
    where r.free and r.first_there and not r.busy and r.place <= greatest(1, max_events / cardinality(_numbers))),
  -- Skips deliveries that a dispatcher is settling after its lease: waiting for them while holding rows that it waits
  -- for would deadlock.
  locked as materialized (
    select r.aggregate_id, r.event_number, r.place
    from run r
    cross join lateral (
      select from queues.delivery d
      where d.subscription_id = claim_events.subscription_id and d.aggregate_id = r.aggregate_id
        and d.event_number = r.event_number
        and d.due_at <= _now and (d.lease_until is null or d.lease_until < _now)
      for update skip locked) d),
  -- Up to the first skipped delivery: no event may overtake it.
  taken as materialized (
    select l.aggregate_id, l.event_number, l.place
    from (select l.*, row_number() over (partition by l.aggregate_id order by l.place) as rank from locked l) l
    where l.rank = l.place),
  held as (
    update queues.delivery d
    set token = _token, lease_until = _now + lease, dispatcher_id = claim_events.dispatcher_id,
      attempt = d.attempt + (r.place = 1)::integer, counted = r.place = 1
    from taken r
    where d.subscription_id = claim_events.subscription_id and d.aggregate_id = r.aggregate_id
      and d.event_number = r.event_number
    returning d.event_id, d.aggregate_id, d.event_number, d.attempt + (not d.counted)::integer as attempt)
  select h.event_id, _token, h.attempt, h.aggregate_id, e.event_type,
    coalesce(e.source, '/holdfast/' || current_database()), coalesce(e.subject, e.aggregate_id), e.occurred_at,
    e.traceparent, e.data, _now + lease
  from held h
  cross join lateral (select e.* from queues.outbox_event e where e.event_id = h.event_id offset 0) e
  order by h.aggregate_id, h.event_number;
end
$$;

comment on function queues.claim_events(text, integer, integer, interval, text) is
  'Leases events of a subscription: of each aggregate the first one, and those that follow it in order.';
