-- Created by the login for the owner, like the others. It acts as the owner again afterwards.
do $$
begin
  if pg_catalog.to_regnamespace('comms') is null then
    perform pg_catalog.set_config('role', pg_catalog.current_setting('holdfast.login'), true);
    if not pg_catalog.has_database_privilege(current_user, pg_catalog.current_database(), 'create') then
      raise exception using message = pg_catalog.format(
        'The login %I may not create the schema comms. Have a DBA run this, then migrate again:', current_user)
        || pg_catalog.format(e'\n\n  grant create on database %I to %I;', pg_catalog.current_database(), current_user);
    end if;
    execute pg_catalog.format('create schema comms authorization %I', pg_catalog.current_setting('holdfast.owner'));
    perform pg_catalog.set_config('role', pg_catalog.current_setting('holdfast.owner'), true);
  end if;
end
$$;

comment on schema comms is 'Holdfast: e-mail and text messages, the first business process built on the engine.';
