-- Returns the default namespace of a login: its name, with a prefix if it could be that of a token. No pinned path, so
-- that PostgreSQL can inline it: it runs once per enqueue.
create or replace function queues.namespace_of_login(login text)
returns text
language sql immutable parallel safe
as $$
  select case when pg_catalog.starts_with(login, 'token:') or pg_catalog.starts_with(login, 'login:')
    then 'login:' || login else login end
$$;

comment on function queues.namespace_of_login(text) is
  'Returns the default namespace of a login: its name, with a prefix if it could be that of a token.';
