-- How many tasks a rate lets start at a time: what was left, and what has come in since. A full bucket holds one period's worth.
create or replace function queues.tokens_at(given queues.task_limit, at timestamptz)
returns double precision
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select least(given.rate, given.tokens
    + greatest(0, extract(epoch from at - given.counted_at)::double precision) * given.rate / extract(epoch from given.per)::double precision)
$$;

comment on function queues.tokens_at(queues.task_limit, timestamptz) is
  'How many tasks a rate lets start at a time: what was left, and what has come in since.';
