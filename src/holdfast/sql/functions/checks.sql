-- What most functions do first: read the clock, make the commit durable, and check what the caller has sent.
-- Invariant: every stored time of what has happened comes from queues.clock(), and so from the server; a start that a
-- worker reports is limited to the time between its claim and now. The clock goes on during a transaction, so most
-- functions read it once. No function of the engine lowers synchronous_commit. What cannot be stored is refused, or
-- replaced where a report must not fail; no content of a document makes a later function fail.
-- Lock order: none.
-- At the same time: sessions read the same clock, but commit in another order than they read it. It may also be set
-- back: where that matters, a stored time in the future is taken for one from before.

-- Returns the current time: the only clock, from which every stored time comes. Tests replace this function as the
-- owner. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.clock()
returns timestamptz
language sql volatile parallel safe
as $$ select pg_catalog.clock_timestamp() $$;

-- Makes the commit of this transaction wait for the disk. Raises synchronous_commit only: a caller that waits for a
-- standby (remote_apply) goes on doing so. No function lowers it, because the rest of the transaction is the caller's:
-- a worker lowers it for its own session. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.commit_to_disk()
returns text
language sql volatile
as $$
  select case when pg_catalog.current_setting('synchronous_commit') = any ('{off,local,remote_write}'::text[])
    then pg_catalog.set_config('synchronous_commit', 'on', true) end
$$;

-- Raises QF400 or QF413 unless the argument is an array of objects of an allowed length. Returns true, so that a
-- declaration can call it without a query.
create or replace function queues.check_batch(field text, batch jsonb)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if batch is null or jsonb_typeof(batch) <> 'array' then
    raise exception using errcode = 'QF400', message = format('%s must be an array of objects', field);
  elsif jsonb_path_exists(batch, 'strict $[*] ? (@.type() != "object")') then
    raise exception using errcode = 'QF400', message = (
      select format('%s[%s] must be an object', field, e.n - 1)
      from jsonb_array_elements(batch) with ordinality e(element, n)
      where jsonb_typeof(e.element) <> 'object' order by e.n limit 1);
  elsif jsonb_array_length(batch) > 1000 then
    return queues.check_batch_size(field, jsonb_array_length(batch));
  end if;
  return true;
end
$$;

-- Raises QF413 if a batch has more elements than the setting max_batch allows, else returns true.
create or replace function queues.check_batch_size(field text, size integer)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _most bigint := 1000;  -- the minimum of the setting
begin
  if size > _most then
    select s.value into _most from queues.setting s where s.name = 'max_batch';
  end if;
  if size > _most then
    raise exception using errcode = 'QF413',
      message = format('%s has %s elements, and at most %s are allowed in one call', field, size, _most),
      hint = 'Send it in several calls.';
  end if;
  return true;
end
$$;

-- Refuses a number that is missing or out of range.
create or replace function queues.check_number(name text, value bigint, least_allowed bigint, most_allowed bigint)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if value is null or value not between least_allowed and most_allowed then
    raise exception using errcode = 'QF400',
      message = format('%s must be between %s and %s', name, least_allowed, most_allowed);
  end if;
end
$$;

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

-- Returns why Python or JavaScript could not read a document, or null. Checks before it converts to text: a few bytes
-- such as 1e131071 become megabytes of text.
create or replace function queues.document_problem(document jsonb, max_bytes bigint)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _text text := queues.safe_text(document);
begin
  if _text is null then
    if pg_column_size(document) > 4 * max_bytes then
      return format('is larger than the %s bytes allowed', max_bytes);
    elsif jsonb_path_exists(document, '$.**{65 to last}') then
      return 'is nested deeper than 64 levels';
    elsif exists (
      select from jsonb_path_query(document, '$.** ? (@.type() == "number")') number
      where scale(number::numeric) > 400
         or abs(number::numeric) > 1.7976931348623157e308
         or (number::numeric <> 0 and abs(number::numeric) < 4.9e-324))
    then
      return 'contains a number that Python or JavaScript cannot read';
    end if;
    _text := document::text;
  end if;
  if octet_length(_text) > max_bytes then
    return format('is %s bytes long, and at most %s bytes are allowed', octet_length(_text), max_bytes);
  end if;
  return null;
end
$$;

-- Returns a document as text if it is certainly safe to convert and to read, else null. Safe means small, or of
-- moderate size with no number out of range and no deep nesting. Stable, because pg_column_size is, and without a
-- pinned path, so that PostgreSQL can inline it: it runs once per task.
create or replace function queues.safe_text(document jsonb)
returns text
language sql stable parallel safe
as $$
  select case
    -- At most 30 levels fit into 250 bytes, and an unreadable number takes more than 308 digits.
    when pg_catalog.pg_column_size(document) <= 250 then
      case when pg_catalog.octet_length(document::text) <= 308 then document::text end
    when pg_catalog.pg_column_size(document) <= 8192
      and not pg_catalog.jsonb_path_exists(document, '$.**{65 to last}')
      and not pg_catalog.jsonb_path_exists(document, '$.** ? (@.type() == "number" && (@ > 1.7976931348623157e308
        || @ < -1.7976931348623157e308 || (@ > 0 && @ < 4.9e-324) || (@ < 0 && @ > -4.9e-324)))')
    then document::text end
$$;

-- Returns the document, or a note in its place if it could not be read back. The result of a handler thus never keeps
-- its task from ending. The default maximum size is that of a result in the settings.
create or replace function queues.storable(document jsonb, max_bytes bigint default null)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  -- The minimum of the setting: smaller documents need no lookup of the setting.
  if document is null or octet_length(queues.safe_text(document)) <= 4096 then
    return document;
  end if;
  _problem := queues.document_problem(document,
    coalesce(max_bytes, (select s.value from queues.setting s where s.name = 'max_result_bytes')));
  if _problem is null then
    return document;
  end if;
  return jsonb_build_object('holdfast', 'not stored', 'reason', 'the value ' || _problem,
    'stored_bytes', pg_column_size(document));
end
$$;

-- Returns a one-line message for an error, whatever form the worker reported it in. No pinned path, so that PostgreSQL
-- can inline it.
create or replace function queues.error_message(error jsonb, otherwise text)
returns text
language sql immutable parallel safe
as $$
  select pg_catalog.left(case pg_catalog.jsonb_typeof(error)
    when 'object' then coalesce(error ->> 'message', error ->> 'kind', error::text)
    when 'string' then error #>> '{}'
    when 'null' then otherwise
    else coalesce(error::text, otherwise) end, 8192)
$$;

-- Returns the kind of an error, whatever form the worker reported it in.
-- No pinned path, so that PostgreSQL can inline it.
create or replace function queues.error_kind(error jsonb, otherwise text)
returns text
language sql immutable parallel safe
as $$
  select pg_catalog.left(coalesce(
    case when pg_catalog.jsonb_typeof(error) = 'object' then error ->> 'kind' end, otherwise), 200)
$$;

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
