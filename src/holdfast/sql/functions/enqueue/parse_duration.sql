-- Parses a duration within bounds: seconds, or the text form of an interval.
create or replace function queues.parse_duration(
  field text, value text, least_allowed interval, most_allowed interval, place text default '')
returns interval
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  -- In the extended syntax of regular expressions, white space is ignored.
  if value !~ '(?x)^( [0-9]{1,10}(\.[0-9]{1,9})?
      | ([0-9]{1,5}[ ]days?[ ]?)?([0-9]{1,6}:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?)?
      | [0-9]{1,9}(\.[0-9]{1,9})?[ ]?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?) )$'
     or value = ''
     or value::interval not between least_allowed and most_allowed
  then
    raise exception using errcode = 'QF400',
      message = format('%s%s %s is not a duration between %s and %s',
        place, field, to_json(value), least_allowed, most_allowed),
      hint = 'Write seconds (30), or a number with a unit (5 minutes).';
  end if;
  return value::interval;
end
$$;

comment on function queues.parse_duration(text, text, interval, interval, text) is
  'Parses a duration within bounds: seconds, or the text form of an interval.';
