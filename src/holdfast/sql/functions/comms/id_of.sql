-- Returns the id in a payload, or null.
-- Internal.
create or replace function comms.id_of(payload jsonb, field text)
returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select case when payload ->> field ~ '^[0-9]{1,18}$' then (payload ->> field)::bigint end $$;

comment on function comms.id_of(jsonb, text) is 'Returns the id in a payload, or null.';
