-- Locks all tables before an upgrade changes the first one. Locking them one by one, in the order of the files, would
-- conflict with the order in which calls lock them; PostgreSQL would then end a session that has waited for a second,
-- possibly a client. So no lock is waited for that long. The tables that calls lock first come first: a call that has
-- locked none of them waits there, holding nothing that the upgrade needs.
do $$
declare
  _first constant text[] := array['setting', 'executor', 'paused_queue', 'lane', 'lease', 'ready', 'worker',
    'task_key', 'task'];
  _tables text;
begin
  if pg_catalog.current_setting('holdfast.action') = 'upgrade' then
    select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', '
      order by pg_catalog.array_position(_first, c.relname::text), c.oid) into _tables
    from pg_catalog.pg_class c
    where c.relnamespace in (pg_catalog.to_regnamespace('queues'), pg_catalog.to_regnamespace('comms'))
      and c.relkind in ('r', 'p');
    execute pg_catalog.format('lock table %s in access exclusive mode', _tables);
  end if;
end
$$;
