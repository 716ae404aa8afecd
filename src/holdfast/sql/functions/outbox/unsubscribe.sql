-- Ends a subscription and frees its name; outstanding events are not delivered.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.unsubscribe(name text)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
begin
  update queues.subscription s set removed_at = queues.clock(), removed_by = session_user, engine_events = false,
    secrets = '{}'
  where s.subscription_id = _subscription_id;
end
$$;

comment on function queues.unsubscribe(text) is
  'Ends a subscription and frees its name; outstanding events are not delivered.';
