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

comment on function queues.has_role(text, name) is
  'Returns whether a login is a member of one of the engine''s roles, or owns a database of a single login.';
