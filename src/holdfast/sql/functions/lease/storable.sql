-- The document, or a note in its place if nobody could read it back: what a handler returns never keeps its task from ending.
create or replace function queues.storable(document jsonb, max_bytes bigint)
returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  if document is null or pg_column_size(document) <= 100 and octet_length(document::text) <= 308 then
    return document;
  end if;
  _problem := queues.problem_with_document(document, max_bytes);
  if _problem is null then
    return document;
  end if;
  return jsonb_build_object('holdfast', 'not stored', 'reason', 'the value ' || _problem, 'stored_bytes', pg_column_size(document));
end
$$;

comment on function queues.storable(jsonb, bigint) is
  'The document, or a note in its place if nobody could read it back.';
