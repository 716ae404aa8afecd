-- Returns the types with one of these prefixes that have a lane, with one index lookup for each, and the empty type,
-- which stands for lanes that types share.
-- Internal.
create or replace function queues.types_in_use(type_prefixes text[])
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _found text[] := array[''];
  _prefix text;
  _type text;
begin
  foreach _prefix in array type_prefixes loop
    select l.type into _type from queues.lane l
    where l.type >= _prefix and l.type > '' and coalesce(l.concurrency_key, '') = '' order by l.type limit 1;
    while starts_with(_type, _prefix) loop
      _found := _found || _type;
      select l.type into _type from queues.lane l
      where l.type > _type and coalesce(l.concurrency_key, '') = '' order by l.type limit 1;
    end loop;
  end loop;
  return _found;
end
$$;

comment on function queues.types_in_use(text[]) is
  'Returns the types with one of these prefixes that have a lane, and the empty type for lanes that types share.';
