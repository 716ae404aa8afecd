-- Resumes the delivery of a subscription's events at once, and returns whether it was paused. Also resets its
-- breakers.
-- For holdfast_operator. Locks: the subscription, then its breakers.
create or replace function queues.resume_subscription(name text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _subscription_id constant integer := queues.find_subscription(name);
  _was_paused boolean;
begin
  update queues.subscription s set paused_at = null, paused_by = null, pause_reason = null
  where s.subscription_id = _subscription_id and s.paused_at is not null;
  _was_paused := found;
  if _was_paused then
    insert into queues.subscription_act (subscription, act, occurred_at, actor, reason)
    values (name, 'resumed', queues.clock(), queues.actor(), left(reason, 2000));
  end if;
  update queues.breaker b set failures = 0, openings = 0, open_until = null, probe_token = null
  where b.subscription_id = _subscription_id;
  perform queues.wake_dispatchers();
  return _was_paused;
end
$$;

comment on function queues.resume_subscription(text, text) is
  'Resumes the delivery of a subscription''s events at once, and returns whether it was paused.';
