-- Gives a login its own namespace back. Returns false if it had it already. What the login enqueued stays in the namespace where it is.
-- For administrators, which are the members of holdfast_owner. Locks: the login's row.
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

comment on function queues.remove_from_namespace(text, text) is 'Gives a login its own namespace back.';
