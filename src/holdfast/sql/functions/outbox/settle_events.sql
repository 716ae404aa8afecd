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

comment on function queues.settle_events(text, jsonb) is
  'Settles claimed events and returns a verdict for each: accepted, already_done or lost.';
