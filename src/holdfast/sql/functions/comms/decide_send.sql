-- Returns the supervisor's decision on a send, from the facts alone, and when an attempt is due. The decision is sleep,
-- attempt, wait, succeeded, failed or gave_up. The time also comes from the facts, so a repeated or nudged run decides
-- the same and never shortens a back-off.
-- Internal.
create or replace function comms.decide_send(
  has_succeeded boolean, scheduled integer, failures integer, max_attempts integer, scheduled_at timestamptz, waits integer, most_waits integer,
  failed_for_good boolean, last_error text, retry_at timestamptz, retry_until timestamptz,
  may_be_delivered boolean, repeatable_until timestamptz, when_unknown text, now timestamptz,
  out decision text, out reason text, out attempt_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select d.decision, d.reason || case when d.decision = 'failed' and may_be_delivered
      then ' (the outcome of an attempt is unknown: it may have been delivered)' else '' end,
    case d.decision when 'attempt' then greatest(now, retry_at) end
  from (values
    (1, has_succeeded, 'succeeded', format('attempt %s has succeeded', scheduled)),
    (2, scheduled > failures and waits >= most_waits, 'gave_up',
      format('attempt %s has had no outcome in %s runs of the supervisor', scheduled, waits)),
    (3, scheduled > failures, 'wait', format('attempt %s has no outcome yet', scheduled)),
    (4, failed_for_good, 'failed', format('attempt %s has failed for good: %s', failures, last_error)),
    (5, failures >= max_attempts, 'failed', format('%s of %s attempts have failed, the last with: %s', failures, max_attempts, last_error)),
    (6, when_unknown = 'stop' and may_be_delivered and repeatable_until is null, 'failed',
      format('another attempt could deliver it twice, and when_unknown is stop: %s', last_error)),
    (7, when_unknown = 'stop' and may_be_delivered and greatest(now, retry_at) > repeatable_until, 'failed',
      format('the provider recognises the idempotency key until %s, the next attempt would be at %s and could deliver it twice, and '
        'when_unknown is stop: %s', repeatable_until, greatest(now, retry_at), last_error)),
    (8, greatest(now, retry_at) > retry_until, 'failed',
      format('the next attempt would be at %s, and retry_for ends at %s: %s',
        greatest(now, retry_at), retry_until, last_error)),
    (9, scheduled_at > now, 'sleep', format('it is to be sent at %s', scheduled_at)),
    (10, true, 'attempt', format('attempt %s of %s', scheduled + 1, max_attempts))) d(n, holds, decision, reason)
  where d.holds order by d.n limit 1
$$;

comment on function comms.decide_send(
  boolean, integer, integer, integer, timestamptz, integer, integer, boolean, text, timestamptz, timestamptz, boolean,
  timestamptz, text, timestamptz) is
  'Returns the supervisor''s decision on a send, from the facts alone, and when an attempt is due.';
