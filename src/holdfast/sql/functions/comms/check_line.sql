-- Refuses a value with more than one line. A line break in an address or a subject would start another header.
create or replace function comms.check_line(field text, value text, most integer)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The length is checked first, so that no long text is searched.
  if octet_length(value) not between 1 and most then
    raise exception using errcode = 'QF400', message = format('%s must be between 1 and %s bytes long', field, most);
  elsif value ~ '[\x01-\x1f\x7f]' then
    raise exception using errcode = 'QF400',
      message = format('%s must not contain line breaks or control characters', field);
  end if;
end
$$;

comment on function comms.check_line(text, text, integer) is 'Refuses a value with more than one line.';
