-- Returns how many tasks a rate allows to start at a given time: the rest of the tokens and those added since. A full
-- bucket contains the tokens of one period.
create or replace function queues.tokens_at(given queues.task_limit, at timestamptz)
returns double precision
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select least(given.rate, given.tokens
    + greatest(0, extract(epoch from at - given.counted_at)::double precision) * given.rate
      / extract(epoch from given.per)::double precision)
$$;

comment on function queues.tokens_at(queues.task_limit, timestamptz) is
  'Returns how many tasks a rate allows to start at a given time: the rest of the tokens and those added since.';
