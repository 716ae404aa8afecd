-- Sets holdfast.owner, the role that owns everything, and holdfast.login, as which the login acts until it becomes the
-- owner. A database keeps the way in which it was installed, with roles or for a single login, and only that login
-- migrates it: no migration acts for an owner that another login has put there.
do $$
declare
  _single constant boolean := pg_catalog.current_setting('holdfast.single_login');
  _owner name;
begin
  select pg_catalog.pg_get_userbyid(c.relowner) into _owner
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'queues' and c.relname = 'installation' and n.nspowner = c.relowner;

  if _single and _owner = 'holdfast_owner' then
    raise exception using message =
      'This database was installed with roles, and keeps them. Leave out --single-login.';
  elsif _owner <> 'holdfast_owner' and (not _single or _owner <> current_user) then
    raise exception using message = pg_catalog.format(
      'This database was installed for the single login %I, and this login is %I. Connect as %I%s.', _owner,
      current_user, _owner, case when _single then '' else ', with --single-login if this is a script' end);
  end if;
  perform pg_catalog.set_config('holdfast.login', pg_catalog.current_setting('role'), true);
  perform pg_catalog.set_config('holdfast.owner', case when _single then current_user else 'holdfast_owner' end, true);
end
$$;
