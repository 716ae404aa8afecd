-- The document, or a note in its place if nobody could read it back: what a handler returns never keeps its task from ending.
-- At most so many bytes; unless given, what the installation allows for a result.
create or replace function queues.storable(document jsonb, max_bytes bigint default null)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _problem text;
begin
  -- The least that the limit may be: what is smaller needs no look into the settings.
  if document is null or octet_length(queues.text_of_plain(document)) <= 4096 then
    return document;
  end if;
  _problem := queues.problem_with_document(document,
    coalesce(max_bytes, (select s.value from queues.setting s where s.name = 'max_result_bytes')));
  if _problem is null then
    return document;
  end if;
  return jsonb_build_object('holdfast', 'not stored', 'reason', 'the value ' || _problem, 'stored_bytes', pg_column_size(document));
end
$$;

comment on function queues.storable(jsonb, bigint) is
  'The document, or a note in its place if nobody could read it back.';
