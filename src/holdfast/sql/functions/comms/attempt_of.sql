-- Returns the attempt that a handler's payload names, else the last one; null if there is no such attempt.
-- Internal.
create or replace function comms.attempt_of(payload jsonb, scheduled integer)
returns integer
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select a.attempt from (
    select case when payload #>> '{original_payload,attempt}' is null then scheduled
      when payload #>> '{original_payload,attempt}' ~ '^[0-9]{1,9}$' then (payload #>> '{original_payload,attempt}')::integer
      end as attempt) a
  where a.attempt between 1 and scheduled
$$;

comment on function comms.attempt_of(jsonb, integer) is
  'Returns the attempt that a handler''s payload names, else the last one; null if there is no such attempt.';
