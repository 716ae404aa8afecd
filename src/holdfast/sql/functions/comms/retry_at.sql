-- The earliest time of the attempt after one that failed: a back-off that doubles from 2 seconds to 5 minutes, plus up to half of it by chance, or
-- the pause that the provider asked for if that is longer. The caller records it, so that the chance is taken once.
create or replace function comms.retry_at(error jsonb, attempt integer, now timestamptz)
returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select now + greatest(queues.backoff(attempt), interval '1 second' * case when jsonb_typeof(error -> 'retry_after') = 'number'
    then least(31 * 86400, (error ->> 'retry_after')::numeric) end)
$$;

comment on function comms.retry_at(jsonb, integer, timestamptz) is
  'The earliest time of the attempt after one that failed: a back-off with jitter, or the pause that the provider asked for.';
