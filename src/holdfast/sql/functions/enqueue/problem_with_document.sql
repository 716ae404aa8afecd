-- What would keep Python or JavaScript from reading a document, or null. Looks before it renders: a few bytes such as 1e131071 become
-- megabytes of text. Documents too small to hide anything are let through unread.
create or replace function queues.problem_with_document(document jsonb, max_bytes bigint)
returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_column_size(document) <= 300 then
    -- At most 35 levels fit. A number that no reader holds takes more than 308 digits to write.
    if octet_length(document::text) <= least(308, max_bytes) then
      return null;
    end if;
  elsif pg_column_size(document) > 4 * max_bytes then
    return format('is larger than %s bytes', max_bytes);
  end if;

  if jsonb_path_exists(document, '$.**{65 to last}') then
    return 'is nested deeper than 64 levels';
  end if;
  if exists (
    select from jsonb_path_query(document, '$.** ? (@.type() == "number")') number
    where scale(number::numeric) > 400
       or abs(number::numeric) > 1.7976931348623157e308
       or (number::numeric <> 0 and abs(number::numeric) < 2.3e-308))
  then
    return 'holds a number that Python or JavaScript cannot read';
  end if;
  if octet_length(document::text) > max_bytes then
    return format('is %s bytes, and at most %s are allowed', octet_length(document::text), max_bytes);
  end if;
  return null;
end
$$;

comment on function queues.problem_with_document(jsonb, bigint) is
  'What would keep Python or JavaScript from reading a document, or null.';
