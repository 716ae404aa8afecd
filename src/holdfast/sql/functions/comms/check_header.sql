-- Refuses a header that could be misread, or that Holdfast sets itself.
create or replace function comms.check_header(name text, value jsonb)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if name !~ '^[A-Za-z][A-Za-z0-9-]{0,75}$' then
    raise exception using errcode = 'QF400',
      message = format('headers: %s is not the name of a header', to_json(left(name, 100)));
  elsif lower(name) in ('to', 'cc', 'bcc', 'from', 'sender', 'reply-to', 'subject', 'date', 'message-id',
    'mime-version', 'content-type', 'content-transfer-encoding', 'content-disposition', 'received', 'return-path',
    'dkim-signature')
  then
    raise exception using errcode = 'QF400', message = format('headers: %s cannot be set here', name);
  elsif jsonb_typeof(value) <> 'string' then
    raise exception using errcode = 'QF400', message = format('headers: %s must be a string', name);
  end if;
  perform comms.check_line('headers: ' || name, value #>> '{}', 900);
end
$$;

comment on function comms.check_header(text, jsonb) is
  'Refuses a header that could be misread, or that Holdfast sets itself.';
