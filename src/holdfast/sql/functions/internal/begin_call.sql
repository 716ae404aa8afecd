-- Lets the session act for a namespace, without any role of the engine, until internal.end_call or a rollback. Returns
-- false if it does so already: a function of a process that calls another one keeps what it acts for.
-- Internal: called by internal.call_checked. Locks: nothing.
create or replace function internal.begin_call(namespace text)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if (internal.current_call()).namespace is not null then
    return false;
  end if;
  insert into internal.call (transaction_id, namespace, actor)
  values (pg_current_xact_id(), coalesce(begin_call.namespace, queues.namespace()), queues.actor());
  return true;
end
$$;

comment on function internal.begin_call(text) is
  'Lets the session act for a namespace, without any role of the engine, until internal.end_call or a rollback.';
