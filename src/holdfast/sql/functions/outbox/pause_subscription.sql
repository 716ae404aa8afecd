-- Stops the delivery of a subscription's events until it is resumed, and returns whether it was active. Events
-- accumulate meanwhile. Events that are being sent are not affected.
-- For holdfast_operator. Locks: the subscription.
create or replace function queues.pause_subscription(name text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
begin
  update queues.subscription s
  set paused_at = queues.clock(), paused_by = queues.actor(), pause_reason = left(pause_subscription.reason, 2000)
  where s.subscription_id = _subscription_id and s.paused_at is null;
  if not found then
    return false;
  end if;
  insert into queues.subscription_act (subscription, act, occurred_at, actor, reason)
  values (name, 'paused', queues.clock(), queues.actor(), left(reason, 2000));
  return true;
end
$$;

comment on function queues.pause_subscription(text, text) is
  'Stops the delivery of a subscription''s events until it is resumed, and returns whether it was active.';
