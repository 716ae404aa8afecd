-- The namespace of the session: whose tasks, idempotency keys, inbox events and schedules it works with. It is the login, unless an
-- administrator lets the login share a namespace with others. The login is session_user, which no set role and no definer function changes.
-- For holdfast_client, holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.namespace()
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce((select n.namespace from queues.namespace_login n where n.login = session_user::text),
    queues.namespace_of_login(session_user::text));
end
$$;

comment on function queues.namespace() is
  'The namespace of the session: whose tasks, idempotency keys, inbox events and schedules it works with.';
