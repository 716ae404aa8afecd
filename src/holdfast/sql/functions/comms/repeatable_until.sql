-- Returns until when another attempt of a send cannot deliver twice, or null if it could at once. The key of a send may
-- have been used since its first attempt was scheduled; the error states for how long the provider recognizes it.
-- Internal.
create or replace function comms.repeatable_until(error jsonb, first_scheduled_at timestamptz)
returns timestamptz
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select first_scheduled_at + interval '1 second' * case when jsonb_typeof(error -> 'key_seconds') = 'number'
    and error -> 'outcome_unknown' = 'true' then least(366 * 86400, greatest(0, (error ->> 'key_seconds')::numeric)) end
$$;

comment on function comms.repeatable_until(jsonb, timestamptz) is
  'Returns until when another attempt of a send cannot deliver twice, or null if it could at once.';
