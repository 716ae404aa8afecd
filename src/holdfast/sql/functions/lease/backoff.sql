-- Returns the default delay before a retry: doubling from 2 seconds to 5 minutes, plus up to half at random.
create or replace function queues.backoff(attempt integer)
returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select least(300, 2 ^ least(attempt, 20)) * (1 + random() / 2) * interval '1 second' $$;

comment on function queues.backoff(integer) is
  'Returns the default delay before a retry: doubling from 2 seconds to 5 minutes, plus up to half at random.';
