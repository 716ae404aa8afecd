-- Instead of roles.sql: the login that migrates owns everything and does everything. It needs one right.
do $$
begin
  if (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user) then
    raise exception using message = pg_catalog.format(
      'The login %I is a superuser. Its functions would run with all rights, and it can create roles. Leave out '
      '--single-login, or connect as the login of your application.', current_user);
  elsif not pg_catalog.has_database_privilege(current_user, pg_catalog.current_database(), 'create')
    and (pg_catalog.to_regnamespace('queues') is null or pg_catalog.to_regnamespace('internal') is null)
  then
    raise exception using message = pg_catalog.format(
      'The login %I may not prepare the database %I. Have a DBA run this, then migrate again:', current_user,
      pg_catalog.current_database())
      || pg_catalog.format(e'\n\n  grant create on database %I to %I;', pg_catalog.current_database(), current_user);
  end if;
end
$$;
