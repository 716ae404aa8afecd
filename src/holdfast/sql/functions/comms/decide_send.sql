-- What the supervisor of a send decides, from the facts alone. The word is one of sleep, attempt, wait, succeeded, failed and gave_up.
create or replace function comms.decide_send(
  has_succeeded boolean, failures integer, scheduled integer, max_attempts integer, scheduled_at timestamptz, when_unknown text,
  failed_for_good boolean, outcome_unknown boolean, last_error text, run integer, most_runs integer, now timestamptz,
  out decision text, out reason text)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select d.decision, d.reason from (values
    (1, has_succeeded, 'succeeded', format('attempt %s has succeeded', scheduled)),
    (2, failed_for_good, 'failed', format('attempt %s has failed for good: %s', failures, last_error)),
    (3, outcome_unknown and when_unknown = 'stop', 'failed',
      format('nobody knows whether attempt %s was sent, and this send stops then: %s', failures, last_error)),
    (4, failures >= max_attempts, 'failed', format('%s of %s attempts have failed, the last with: %s', failures, max_attempts, last_error)),
    (5, run > most_runs, 'gave_up', format('the supervisor has run %s times, and there is no end', run - 1)),
    (6, scheduled > failures, 'wait', format('attempt %s has no outcome yet', scheduled)),
    (7, scheduled_at > now, 'sleep', 'it is to be sent later'),
    (8, true, 'attempt', format('attempt %s of %s', scheduled + 1, max_attempts))) d(n, holds, decision, reason)
  where d.holds order by d.n limit 1
$$;

comment on function comms.decide_send(
  boolean, integer, integer, integer, timestamptz, text, boolean, boolean, text, integer, integer, timestamptz) is
  'What the supervisor of a send decides, from the facts alone.';
