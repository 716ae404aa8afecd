-- Refuses an invalid type or queue name: empty, too long, with white space or with an empty segment.
create or replace function queues.check_name(field text, name text, place text default '')
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if name is null or name = '' then
    raise exception using errcode = 'QF400', message = format('%s%s must not be empty', place, field);
  elsif octet_length(name) > 200 then
    raise exception using errcode = 'QF400',
      message = format('%s%s is %s bytes long, and at most 200 are allowed', place, field, octet_length(name));
  -- White space and control characters are listed by number, because character classes depend on the database's locale.
  elsif name ~ '[\u0001-\u0020\u007f-\u00a0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]'
    or name !~ '^[^.:]+([.:][^.:]+)*$'
  then
    raise exception using errcode = 'QF400',
      message = format('%s%s %s is malformed', place, field, to_json(name)),
      hint = 'Segments are separated by "." or ":", are not empty and have no white space: billing.invoice_charge.v1';
  end if;
end
$$;

comment on function queues.check_name(text, text, text) is
  'Refuses an invalid type or queue name: empty, too long, with white space or with an empty segment.';
