-- Refuses an attribute of an event that cannot be sent in a header: empty, too long, or with control characters. Null
-- is allowed.
create or replace function queues.check_attribute(field text, value text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if value = '' or octet_length(value) > 500 then
    raise exception using errcode = 'QF400', message = format('%s must be between 1 and 500 bytes long', field);
  elsif value ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception using errcode = 'QF400',
      message = format('%s %s contains control characters', field, to_json(value));
  end if;
end
$$;

comment on function queues.check_attribute(text, text) is
  'Refuses an attribute of an event that cannot be sent in a header: empty, too long, or with control characters.';
