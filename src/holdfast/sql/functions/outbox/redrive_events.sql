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
  if max_events is null or max_events not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_events must be between 1 and 10000';
  end if;
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

comment on function queues.redrive_events(text, uuid, integer, text, timestamptz) is
  'Gives dead events of a subscription, the oldest first, a new set of attempts, and returns how many.';
