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

comment on function queues.document_problem(jsonb, bigint) is
  'Returns why Python or JavaScript could not read a document, or null.';
