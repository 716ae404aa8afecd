-- Before an upgrade changes its first table it has all of them. Taken one by one, in the order of the files, they would cross the order
-- in which calls take them; then PostgreSQL ends whoever has waited for a second, and that would be a client. So nothing is waited for that long.
-- First come those that calls begin with: whoever has none of them yet waits there, with nothing in hand that is wanted here.
do $$
declare
  _first constant text[] := array['setting', 'executor', 'paused_queue', 'lane', 'lease', 'ready', 'worker', 'task_key', 'task'];
  _tables text;
begin
  if pg_catalog.current_setting('holdfast.action') = 'upgrade' then
    select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', '
      order by pg_catalog.array_position(_first, c.relname::text), c.oid) into _tables
    from pg_catalog.pg_class c
    where c.relnamespace in (pg_catalog.to_regnamespace('queues'), pg_catalog.to_regnamespace('comms')) and c.relkind in ('r', 'p');
    execute pg_catalog.format('lock table %s in access exclusive mode', _tables);
  end if;
end
$$;
