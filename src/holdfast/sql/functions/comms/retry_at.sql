-- When a provider that asked for a pause may be called again, or null: its wish in seconds, up to a day.
create or replace function comms.retry_at(error jsonb, now timestamptz)
returns timestamptz
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select now + interval '1 second' * case when jsonb_typeof(error -> 'retry_after') = 'number'
    then least(86400, greatest(0, (error ->> 'retry_after')::numeric)) end
$$;

comment on function comms.retry_at(jsonb, timestamptz) is
  'When a provider that asked for a pause may be called again, or null.';
