-- Parses a timestamp that can be stored and computed with: finite, after 1970 and at most a century ahead.
create or replace function queues.parse_time(field text, value text, now timestamptz, place text default '')
returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _right boolean;
  _time timestamptz;
begin
  -- In the extended syntax of regular expressions, white space is ignored.
  _right := value ~ '(?x)^(19[7-9][0-9]|2[0-9]{3}) - (0[1-9]|1[0-2]) - (0[1-9]|[12][0-9]|3[01])
    [T ] ([01][0-9]|2[0-3]) : [0-5][0-9] (:[0-5][0-9](\.[0-9]{1,9})?)?
    [ ]? (Z | [+-](0[0-9]|1[0-5])(:?[0-5][0-9]){0,2})?$';
  -- A cast would also refuse the 30th of February, but could not name the field.
  if _right then
    _right := substr(value, 9, 2)::integer <= extract(day from
      make_date(substr(value, 1, 4)::integer, substr(value, 6, 2)::integer, 1) + interval '1 month' - interval '1 day');
  end if;
  if _right then
    _time := value;
    _right := _time between timestamptz '1970-01-01 00:00Z' and now + interval '100 years';
  end if;
  if not _right then
    raise exception using errcode = 'QF400',
      message = format('%s%s %s is not a time between 1970 and a hundred years from now', place, field, to_json(value)),
      hint = 'Write it as 2030-01-31T08:00:00+00:00.';
  end if;
  return _time;
end
$$;

comment on function queues.parse_time(text, text, timestamptz, text) is
  'Parses a timestamp that can be stored and computed with: finite, after 1970 and at most a century ahead.';
