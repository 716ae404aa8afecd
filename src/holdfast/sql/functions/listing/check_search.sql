-- Returns the parts of a search as matches needs them, or null if there are none. Refuses a path that is not valid.
-- Internal: called by find_tasks and count_tasks.
create or replace function queues.check_search(
  words text, error_group text, payload_path text, search_errors boolean)
returns queues.wanted_text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _wanted queues.wanted_text;
begin
  if coalesce(words, error_group, payload_path) is null then
    return null;
  elsif length(words) not between 1 and 500 then
    raise exception using errcode = 'QF400', message = 'words must be 1 to 500 characters';
  elsif length(payload_path) not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'payload_path must be 1 to 1000 characters';
  elsif error_group !~ '^[0-9a-f]{32}$' then
    raise exception using errcode = 'QF400',
      message = format('error_group %s is not 32 hexadecimal digits', to_json(error_group)),
      hint = 'Take it from queues.list_error_groups.';
  end if;
  _wanted.words := case when words ~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' then words::uuid::text
    else lower(words) end;
  _wanted.error_group := error_group;
  -- A group belongs to one type, which is compared before errors are read.
  _wanted.type := (select g.type from queues.error_group g where g.error_group = check_search.error_group);
  _wanted.search_errors := coalesce(search_errors, true);
  begin
    _wanted.path := payload_path::jsonpath;
  exception when others then
    raise exception using errcode = 'QF400', message = format('payload_path is not a JSON path: %s', sqlerrm),
      hint = 'For example: $.invoice ? (@ == 7)';
  end;
  return _wanted;
end
$$;

comment on function queues.check_search(text, text, text, boolean) is
  'Returns the parts of a search as matches needs them, or null if there are none.';
