-- When to try again, for workers that do not say: 2 s after the first attempt, doubling to at most 5 minutes, plus up to
-- half of it by chance.
create or replace function queues.backoff(attempt integer)
returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select least(300, 2 ^ least(attempt, 20)) * (1 + random() / 2) * interval '1 second' $$;

comment on function queues.backoff(integer) is
  'When to try again, for workers that do not say: doubling from two seconds to five minutes, with jitter.';
