-- Returns the namespace of the session, which owns its tasks, idempotency keys, inbox events and schedules. It is the
-- login, unless an administrator has assigned the login to another namespace. The login is session_user, which neither
-- set role nor definer functions change. During the call of a function of a process, it is that of the task or instance
-- for which it is called.
-- For holdfast_client, holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.namespace()
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce((internal.current_call()).namespace,
    (select n.namespace from queues.namespace_login n where n.login = session_user::text),
    queues.namespace_of_login(session_user::text));
end
$$;

comment on function queues.namespace() is
  'Returns the namespace of the session, which owns its tasks, idempotency keys, inbox events and schedules.';
