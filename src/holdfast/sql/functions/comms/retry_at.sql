-- Returns the earliest time of the next attempt: a back-off with jitter, or the provider's pause if longer. The
-- back-off doubles from 2 seconds to 5 minutes, plus up to half at random. The caller stores the result, so that the
-- random part is chosen once.
-- Internal.
create or replace function comms.retry_at(error jsonb, attempt integer, now timestamptz)
returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select now + greatest(queues.backoff(attempt), interval '1 second' * case when jsonb_typeof(error -> 'retry_after') = 'number'
    then least(31 * 86400, (error ->> 'retry_after')::numeric) end)
$$;

comment on function comms.retry_at(jsonb, integer, timestamptz) is
  'Returns the earliest time of the next attempt: a back-off with jitter, or the provider''s pause if longer.';
