-- Returns the group of an error: a hash of the type of its task, its kind, its exception and the title of its message.
-- Internal.
create or replace function queues.group_of_error(type text, error queues.error)
returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select md5(concat_ws(e'\x1f', type, error.kind, coalesce(error.detail ->> 'exception', ''),
    queues.title_of_error(error.message)))
$$;

comment on function queues.group_of_error(text, queues.error) is
  'Returns the group of an error: a hash of the type of its task, its kind, its exception and its title.';
