-- The roles nobody logs in as. Logins are granted one or more of them; holdfast_owner is granted to nobody
-- but the login that migrates.
do $$
declare
  _role text;
begin
  foreach _role in array array[
    'holdfast_owner', 'holdfast_client', 'holdfast_process', 'holdfast_worker',
    'holdfast_dispatcher', 'holdfast_operator', 'holdfast_reader']
  loop
    if not exists (select from pg_catalog.pg_roles where rolname = _role) then
      execute pg_catalog.format('create role %I nologin', _role);
    end if;
  end loop;

  -- From PostgreSQL 16 on, whoever creates a role administers it but is not a member of it.
  if not pg_catalog.pg_has_role(current_user, 'holdfast_owner', 'member') then
    execute pg_catalog.format('grant holdfast_owner to %I', current_user);
  end if;
  if not pg_catalog.pg_has_role('holdfast_process', 'holdfast_client', 'member') then
    grant holdfast_client to holdfast_process;
  end if;
  if not pg_catalog.pg_has_role('holdfast_operator', 'holdfast_reader', 'member') then
    grant holdfast_reader to holdfast_operator;
  end if;
end
$$;
