-- Returns what a cap counts together: the normalized recipient, the country, or all messages.
create or replace function comms.cap_subject(scope text, recipient text)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case scope when 'recipient' then lower(recipient) when 'country' then comms.calling_code(recipient) else '' end
$$;

comment on function comms.cap_subject(text, text) is
  'Returns what a cap counts together: the normalized recipient, the country, or all messages.';
