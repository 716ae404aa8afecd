-- Refuses a value that is not a single plain e-mail address. Only the provider can tell whether it exists.
create or replace function comms.check_address(field text, value text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform comms.check_line(field, value, 320);
  if value !~ '^[^\s@,;:<>()\[\]"\\]{1,64}@[^\s@,;:<>()\[\]"\\.]+(\.[^\s@,;:<>()\[\]"\\.]+)*$' then
    raise exception using errcode = 'QF400',
      message = format('%s %s is not a single e-mail address', field, to_json(value)),
      hint = 'Write it as ada@example.org, without a name and without further addresses.';
  end if;
end
$$;

comment on function comms.check_address(text, text) is 'Refuses a value that is not a single plain e-mail address.';
