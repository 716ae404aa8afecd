-- Explains how a task ended, with the reason of the person who cancelled it.
-- Internal: called by explain.
create or replace function queues.explain_end(
  status text, finished_at timestamptz, attempt integer, max_attempts integer, reason text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case status
    when 'succeeded' then format('It succeeded at %s, on attempt %s of %s.', finished_at, attempt, max_attempts)
    when 'failed' then format(
      'It failed at %s, on attempt %s of %s, and is not retried. Retry it once the cause is fixed.',
      finished_at, attempt, max_attempts)
    when 'dead_letter' then format('Its attempts were used up at %s (%s of %s). Retry it once the cause is fixed.',
      finished_at, attempt, max_attempts)
    else format('It was cancelled at %s%s. Retry it to let it run after all.', finished_at,
      coalesce(' because: ' || reason, '')) end
$$;

comment on function queues.explain_end(text, timestamptz, integer, integer, text) is
  'Explains how a task ended, with the reason of the person who cancelled it.';
