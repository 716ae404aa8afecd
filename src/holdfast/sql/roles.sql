-- The roles, none of which can log in. Logins are granted one or more of them; holdfast_owner is granted only to the
-- login that migrates, and holdfast_caller to no login: functions of processes are called as this role. If this login
-- lacks rights, one error lists all statements for an administrator.
do $$
declare
  _login constant text := current_user;
  _superuser constant boolean := (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user);
  _creates_roles constant boolean := (
    select r.rolsuper or r.rolcreaterole from pg_catalog.pg_roles r where r.rolname = current_user);
  -- From PostgreSQL 16 on, the creator of a role is its member, but may neither act as it nor grant another's role.
  _since_16 constant boolean := pg_catalog.current_setting('server_version_num')::integer >= 160000;
  _statement text;
  _for_dba text[] := '{}';
  _role text;
  _member text;
  _needed text;
begin
  foreach _role in array array[
    'holdfast_owner', 'holdfast_client', 'holdfast_process', 'holdfast_worker',
    'holdfast_dispatcher', 'holdfast_operator', 'holdfast_reader', 'holdfast_caller']
  loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname = _role) then
      _statement := pg_catalog.format('create role %I nologin', _role);
      if _creates_roles then
        execute _statement;
      else
        _for_dba := _for_dba || _statement;
      end if;
    end if;
  end loop;

  for _role, _member, _needed in
    values ('holdfast_owner', _login, case when _since_16 then 'set' else 'member' end),
      ('holdfast_client', 'holdfast_process', 'member'),
      ('holdfast_reader', 'holdfast_operator', 'member'),
      -- So that a login that is granted the owner can also run workers, the server and the dispatcher.
      ('holdfast_process', 'holdfast_owner', 'member'),
      ('holdfast_worker', 'holdfast_owner', 'member'),
      ('holdfast_dispatcher', 'holdfast_owner', 'member'),
      ('holdfast_operator', 'holdfast_owner', 'member'),
      -- So that the owner can replace internal.call_function, which belongs to this role.
      ('holdfast_caller', 'holdfast_owner', case when _since_16 then 'set' else 'member' end)
  loop
    _statement := pg_catalog.format('grant %I to %I', _role, _member);
    if pg_catalog.to_regrole(_role) is null or pg_catalog.to_regrole(pg_catalog.quote_ident(_member)) is null then
      _for_dba := _for_dba || _statement;
    elsif pg_catalog.pg_has_role(_member, _role, _needed) then
      continue;
    elsif _superuser or (_creates_roles and not _since_16)
      or pg_catalog.pg_has_role(_login, _role, 'member with admin option')
    then
      execute _statement;
    else
      _for_dba := _for_dba || _statement;
    end if;
  end loop;

  if not pg_catalog.has_database_privilege(_login, pg_catalog.current_database(), 'create')
    and (pg_catalog.to_regnamespace('queues') is null or pg_catalog.to_regnamespace('internal') is null)
  then
    _for_dba := _for_dba
      || pg_catalog.format('grant create on database %I to %I', pg_catalog.current_database(), _login);
  end if;

  if _for_dba <> '{}' then
    raise exception using message = pg_catalog.format(
      'The login %I may not prepare the database %I. Have a DBA run this, then migrate again:', _login,
      pg_catalog.current_database()) || e'\n\n  ' || pg_catalog.array_to_string(_for_dba, e';\n  ') || ';'
      || case when _creates_roles or pg_catalog.to_regrole('holdfast_owner') is not null then ''
        else e'\n\nWhere roles cannot be had, holdfast migrate --single-login installs without them.' end;
  end if;
end
$$;
