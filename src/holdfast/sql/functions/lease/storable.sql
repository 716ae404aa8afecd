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

comment on function queues.storable(jsonb, bigint) is
  'Returns the document, or a note in its place if it could not be read back.';
