-- Created by the login for the owner, so that no other role needs a right on the database. A unit may have another one.
do $$
declare
  _schema text;
begin
  foreach _schema in array array['queues', 'internal'] loop
    -- Not "if not exists": it requires the right to create even if there is nothing to create.
    if pg_catalog.to_regnamespace(_schema) is null then
      execute pg_catalog.format('create schema %I authorization %I', _schema,
        pg_catalog.current_setting('holdfast.owner'));
    end if;
  end loop;
end
$$;
