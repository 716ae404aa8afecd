-- Allows one migration of this database at a time. The lock is on a table that only the owner and superusers may lock,
-- so that no other login can block a migration. The wait is limited, and the error names the other session; migrate
-- tries again. If nothing is installed yet, there is nothing to lock: of two concurrent installations, one finds the
-- roles or schemas of the other and tries again.
do $$
declare
  _holder text;
begin
  if not exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'queues' and c.relname = 'installation'
      and pg_catalog.pg_get_userbyid(c.relowner) = pg_catalog.current_setting('holdfast.owner')
      and n.nspowner = c.relowner)
  then
    return;
  end if;
  perform pg_catalog.set_config('lock_timeout', '5s', true);
  begin
    lock table queues.installation in share update exclusive mode;
  exception when lock_not_available then
    select pg_catalog.string_agg(pg_catalog.format('session %s of login %s', a.pid, a.usename), ', ') into _holder
    from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid
    where l.relation = 'queues.installation'::pg_catalog.regclass and l.granted and l.mode = 'ShareUpdateExclusiveLock';
    raise exception using errcode = '55P03', message = pg_catalog.format(
      'another migration of this database is running (%s)', coalesce(_holder, 'it has just ended'));
  end;
  perform pg_catalog.set_config('lock_timeout', '0', true);
end
$$;
