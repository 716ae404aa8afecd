-- Locks all tables before an upgrade changes the first one. Locking them one by one, in the order of the files, would
-- conflict with the order in which calls lock them; PostgreSQL would then end a session that has waited for a second,
-- possibly a client. So no lock is waited for that long. The tables that calls lock first come first: a call that has
-- locked none of them waits there, holding nothing that the upgrade needs. The error names the sessions that hold one.
do $$
declare
  _first constant text[] := array['setting', 'executor', 'paused_queue', 'lane', 'lease', 'ready', 'worker',
    'task_key', 'task'];
  _ours oid[];
  _tables text;
  _holders text;
begin
  if pg_catalog.current_setting('holdfast.action') = 'upgrade' then
    select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', '
      order by pg_catalog.array_position(_first, c.relname::text), c.oid), pg_catalog.array_agg(c.oid)
    into _tables, _ours
    from pg_catalog.pg_class c
    where c.relnamespace = any (pg_catalog.current_setting('holdfast.schemas')::pg_catalog.regnamespace[])
      and c.relkind in ('r', 'p');
    begin
      execute pg_catalog.format('lock table %s in access exclusive mode', _tables);
    exception when lock_not_available then
      -- The one whose transaction is the oldest first: the others may wait for it themselves, or end in a moment.
      select pg_catalog.string_agg(pg_catalog.format('session %s of %s holds %s', h.pid, h.login, h.held), ', '
        order by h.began, h.pid) into _holders
      from (
        select l.pid, a.xact_start as began, coalesce('login ' || a.usename, a.backend_type) as login,
          pg_catalog.min(l.relation::pg_catalog.regclass::text) as held
        from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid
        where l.relation = any (_ours) and l.granted and l.pid <> pg_catalog.pg_backend_pid()
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
        group by l.pid, a.xact_start, a.usename, a.backend_type order by a.xact_start, l.pid limit 3) h;
      raise exception using errcode = '55P03', message = pg_catalog.format(
        'a table is in use (%s)', coalesce(_holders, 'it was, a moment ago'));
    end;
  end if;
end
$$;
