-- The namespace that a login has for itself: its name, told apart from the namespaces of tokens where it begins as they do. No pinned path, so that
-- it is inlined: it runs once per enqueue.
create or replace function queues.namespace_of_login(login text)
returns text
language sql immutable parallel safe
as $$
  select case when pg_catalog.starts_with(login, 'token:') or pg_catalog.starts_with(login, 'login:') then 'login:' || login else login end
$$;

comment on function queues.namespace_of_login(text) is 'The namespace that a login has for itself.';
