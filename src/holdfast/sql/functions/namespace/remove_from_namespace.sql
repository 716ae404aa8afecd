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
  insert into queues.access_act (act, occurred_at, actor, reason)
  values ('namespace_left', queues.clock(), queues.actor(),
    left(format('login %s, namespace %s', login, _former) || coalesce(': ' || reason, ''), 2000));
  return true;
end
$$;

comment on function queues.remove_from_namespace(text, text) is
  'Assigns a login to its own namespace again, and returns false if it already has it.';
