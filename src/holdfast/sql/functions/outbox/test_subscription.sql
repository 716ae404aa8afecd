-- Emits an event of type subscription.test to this subscription only, and returns its id. It is delivered like any
-- other event.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.test_subscription(name text)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
  _event_id constant uuid := queues.new_task_id();
  _number constant bigint := nextval('queues.event_number');
  _now constant timestamptz := queues.clock();
begin
  insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at, event_type, subject,
    emitted_by, namespace, deliveries, data)
  values (_event_id, _number, (pg_current_xact_id()::text::bigint + queues.event_shift())::text::xid8, _now,
    'subscription.test', name, session_user, queues.namespace(), 1, jsonb_build_object('subscription', name));
  insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at, due_at,
    attempt, counted)
  values (_subscription_id, queues.namespace(), _event_id::text, _number, _event_id, _now, _now, 0, false);
  perform queues.wake_dispatchers(array[_subscription_id]);
  return _event_id;
end
$$;

comment on function queues.test_subscription(text) is
  'Emits an event of type subscription.test to this subscription only, and returns its id.';
