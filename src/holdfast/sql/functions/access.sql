-- Who a session is and what it may do: the roles and the namespace of a login, and the name under which acts are
-- recorded.
-- Invariant: the namespace follows from session_user, which no session can choose, or, while a function of a process is
-- called, from the task or instance that it is called for.
-- Lock order: the row of a login; only the acts on one login wait.
-- At the same time: a login may be assigned to another namespace while it works; each transaction sees one of them.

-- Returns whether a login is a member of one of the engine's roles: client, process, worker, dispatcher, operator,
-- reader or owner. In a database of a single login there are no roles: its owner, and the members of it, have all. The
-- session's own login has none during the call of a function of a process, so that the owner of the function does not
-- act with the roles of those who have it called.
create or replace function queues.has_role(role text, login name default session_user)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(pg_has_role(has_role.login,
    case when pg_get_userbyid(n.nspowner) = 'holdfast_owner' then to_regrole('holdfast_' || has_role.role)
      else n.nspowner end, 'member'), false)
    and (has_role.login <> session_user or (internal.current_call()).namespace is null)
  from pg_namespace n where n.nspname = 'queues'
$$;

-- Refuses a name of a namespace that is empty, too long or has more than one line.
create or replace function queues.check_namespace(namespace text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if namespace is null or octet_length(namespace) not between 1 and 500
    or namespace ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
  then
    raise exception using errcode = 'QF400', message = 'namespace must be 1 to 500 bytes on one line';
  end if;
end
$$;

-- Returns who acts: the login, and the person or program that the login says it acts for. The login cannot be forged;
-- the rest is a statement of the login, such as a web server that acts for its users. A function of a process acts as
-- whoever has it called, whatever it states itself.
create or replace function queues.actor()
returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((internal.current_call()).actor,
    session_user || coalesce(' for ' || nullif(left(current_setting('holdfast.acting_for', true), 200), ''), ''))
$$;

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

-- Returns the default namespace of a login: its name, with a prefix if it could be that of a token. No pinned path, so
-- that PostgreSQL can inline it: it runs once per enqueue.
create or replace function queues.namespace_of_login(login text)
returns text
language sql immutable parallel safe
as $$
  select case when pg_catalog.starts_with(login, 'token:') or pg_catalog.starts_with(login, 'login:')
    then 'login:' || login else login end
$$;

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
  perform queues.renew_routes();
  insert into queues.access_act (act, occurred_at, actor, reason)
  values ('namespace_joined', _now, queues.actor(),
    left(format('login %s, namespace %s', login, namespace) || coalesce(': ' || reason, ''), 2000));
  return true;
end
$$;

-- Assigns a login to its own namespace again, and returns false if it already has it. Existing tasks of the login stay
-- in their namespace. For administrators, that is, members of holdfast_owner.
-- Locks: the login's row.
create or replace function queues.remove_from_namespace(login text, reason text default null)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _former text;
begin
  delete from queues.namespace_login n where n.login = remove_from_namespace.login returning n.namespace into _former;
  if not found then
    return false;
  end if;
  perform queues.renew_routes();
  insert into queues.access_act (act, occurred_at, actor, reason)
  values ('namespace_left', queues.clock(), queues.actor(),
    left(format('login %s, namespace %s', login, _former) || coalesce(': ' || reason, ''), 2000));
  return true;
end
$$;
