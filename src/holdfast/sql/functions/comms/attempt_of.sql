-- Returns the attempt that the payload of a send names, else the last one; null if there is no such attempt.
-- Internal.
create or replace function comms.attempt_of(payload jsonb, scheduled integer)
returns integer
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select a.attempt from (
    select case when payload ->> 'attempt' is null then scheduled
      when payload ->> 'attempt' ~ '^[0-9]{1,9}$' then (payload ->> 'attempt')::integer end as attempt) a
  where a.attempt between 1 and scheduled
$$;

comment on function comms.attempt_of(jsonb, integer) is
  'Returns the attempt that the payload of a send names, else the last one; null if there is no such attempt.';
