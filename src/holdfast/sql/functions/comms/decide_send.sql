-- Returns the supervisor's decision on a send, from the facts alone, and when an attempt is due. The decision is sleep,
-- attempt, wait, succeeded, failed or gave_up. The time also comes from the facts, so a repeated or nudged run decides
-- the same and never shortens a back-off.
-- Internal.
create or replace function comms.decide_send(
  send comms.send_task, facts comms.send_facts, now timestamptz,
  out decision text, out reason text, out attempt_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select d.decision, d.reason || case when d.decision = 'failed' and facts.may_be_delivered
      then ' (the outcome of an attempt is unknown: it may have been delivered)' else '' end,
    case d.decision when 'attempt' then t.next_attempt_at end
  from (
    select greatest(now, facts.retry_at) as next_attempt_at, facts.first_failed_at + send.retry_for as retry_until,
      30 as max_waits,  -- for one attempt: about three days, because each wait is longer than the one before
      send.when_unknown = 'stop' and facts.may_be_delivered as must_not_repeat) t
  cross join lateral (values
    (1, facts.has_succeeded, 'succeeded', format('attempt %s has succeeded', facts.scheduled)),
    (2, facts.scheduled > facts.failures and facts.waits >= t.max_waits, 'gave_up',
      format('attempt %s has had no outcome in %s runs of the supervisor', facts.scheduled, facts.waits)),
    (3, facts.scheduled > facts.failures, 'wait', format('attempt %s has no outcome yet', facts.scheduled)),
    (4, facts.failed_for_good, 'failed',
      format('attempt %s has failed for good: %s', facts.failures, facts.last_error)),
    (5, facts.failures >= send.max_attempts, 'failed', format('%s of %s attempts have failed, the last with: %s',
      facts.failures, send.max_attempts, facts.last_error)),
    (6, t.must_not_repeat and facts.repeatable_until is null, 'failed',
      format('another attempt could deliver it twice, and when_unknown is stop: %s', facts.last_error)),
    (7, t.must_not_repeat and t.next_attempt_at > facts.repeatable_until, 'failed',
      format('the provider recognises the idempotency key until %s, the next attempt would be at %s and could deliver '
        'it twice, and when_unknown is stop: %s', facts.repeatable_until, t.next_attempt_at, facts.last_error)),
    (8, t.next_attempt_at > t.retry_until, 'failed',
      format('the next attempt would be at %s, and retry_for ends at %s: %s',
        t.next_attempt_at, t.retry_until, facts.last_error)),
    (9, send.scheduled_at > now, 'sleep', format('it is to be sent at %s', send.scheduled_at)),
    (10, true, 'attempt', format('attempt %s of %s', facts.scheduled + 1, send.max_attempts))
  ) d(n, holds, decision, reason)
  where d.holds order by d.n limit 1
$$;

comment on function comms.decide_send(comms.send_task, comms.send_facts, timestamptz) is
  'Returns the supervisor''s decision on a send, from the facts alone, and when an attempt is due.';
