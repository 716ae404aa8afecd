-- Assigns a login to a namespace, which other logins and tokens may share. Returns false if it already uses that
-- namespace. Existing tasks of the login stay in their namespace. For administrators, that is, members of
-- holdfast_owner. It is granted to no role, because a login in another application's namespace can read and cancel that
-- application's tasks.
-- Locks: the login's row.
create or replace function queues.add_to_namespace(login text, namespace text, reason text default null)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _former text;
begin
  perform queues.check_namespace(namespace);
  if not exists (select from pg_roles r where r.rolname = add_to_namespace.login and r.rolcanlogin) then
    raise exception using errcode = 'QF404',
      message = format('there is no login %s', coalesce(to_json(login)::text, 'null')),
      hint = 'Create it first: create role NAME login.';
  end if;
  insert into queues.namespace_login (login, namespace, added_at, added_by)
  values (login, namespace, _now, queues.actor())
  on conflict do nothing;
  if not found then
    select n.namespace into _former from queues.namespace_login n where n.login = add_to_namespace.login;
    if _former is distinct from add_to_namespace.namespace then
      raise exception using errcode = 'QF409',
        message = format('login %s already uses namespace %s', to_json(login), to_json(_former)),
        hint = 'A login uses one namespace. Remove it from that one first: holdfast namespaces remove LOGIN';
    end if;
    return false;
  end if;
  insert into queues.access_act (act, occurred_at, actor, reason)
  values ('namespace_joined', _now, queues.actor(),
    left(format('login %s, namespace %s', login, namespace) || coalesce(': ' || reason, ''), 2000));
  return true;
end
$$;

comment on function queues.add_to_namespace(text, text, text) is
  'Assigns a login to a namespace, which other logins and tokens may share.';
