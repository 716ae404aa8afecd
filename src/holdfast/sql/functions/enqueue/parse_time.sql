-- A point in time that can be stored and reckoned with: finite, of our era, not absurdly far away.
create or replace function queues.parse_time(field text, value text, now timestamptz, place text default '')
returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if value !~ '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)? ?(Z|[+-][0-9]{2}(:?[0-9]{2}){0,2})?$'
     or value::timestamptz not between timestamptz '1970-01-01 00:00Z' and now + interval '100 years'
  then
    raise exception using errcode = 'QF400',
      message = format('%s%s %s is not a time between 1970 and a hundred years from now', place, field, to_json(value)),
      hint = 'Write it as 2030-01-31T08:00:00+00:00.';
  end if;
  return value::timestamptz;
end
$$;

comment on function queues.parse_time(text, text, timestamptz, text) is
  'A point in time that can be stored and reckoned with: finite, of our era, not absurdly far away.';
