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
  elsif max_deliveries is null or max_deliveries not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_deliveries must be between 1 and 1000';
  end if;
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

comment on function queues.list_deliveries(text, text, integer) is
  'Returns deliveries of a subscription: those that failed for good, the outstanding ones, or those delivered.';
