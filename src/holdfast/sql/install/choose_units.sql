-- Sets which units this database is to have: those that it has, those that are asked for, and of a new database all
-- that are not left out. The parts are the files of these units, and for the others what takes their place. A unit that
-- is installed stays. Only a table of the owner is read, because nobody has looked yet who made the others.
do $$
declare
  _offered constant jsonb := pg_catalog.current_setting('holdfast.offered');
  _wanted constant text[] := pg_catalog.current_setting('holdfast.wanted');
  _unwanted constant text[] := pg_catalog.current_setting('holdfast.unwanted');
  _tables name[];
  _known jsonb;
  _unit record;
  _units text[] := '{}';
  _parts text[] := '{}';
  _schemas text[] := '{}';
  _added text[] := '{}';
  _digests jsonb := '{}';
begin
  select pg_catalog.array_agg(c.relname) into _tables
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'queues' and c.relname in ('unit', 'installation') and c.relkind = 'r' and n.nspowner = c.relowner
    and pg_catalog.pg_get_userbyid(c.relowner) = pg_catalog.current_setting('holdfast.owner');
  if 'unit' = any (_tables) then
    select pg_catalog.jsonb_object_agg(u.unit, u.installed) into _known from queues.unit u;
  elsif 'installation' = any (_tables) then
    -- Made by a release that installed all of them.
    select pg_catalog.jsonb_object_agg(o ->> 'unit', true) into _known
    from pg_catalog.jsonb_array_elements(_offered) o;
  end if;

  for _unit in
    select o ->> 'unit' as name, o, (_known ->> (o ->> 'unit'))::boolean as installed
    from pg_catalog.jsonb_array_elements(_offered) with ordinality f(o, n) order by f.n
  loop
    if _unit.installed and _unit.name = any (_unwanted) then
      raise exception using message = pg_catalog.format(
        'This database has %s, and Holdfast removes no unit: its tables may hold what somebody needs. Leave out '
        '--without %s, and HOLDFAST_WITHOUT. Only a new database can do without it.', _unit.name, _unit.name);
    elsif coalesce(_unit.installed, _unit.name <> all (_unwanted)) or _unit.name = any (_wanted) then
      _units := _units || _unit.name;
      _parts := _parts || _unit.name;
      _schemas := _schemas || array(select pg_catalog.jsonb_array_elements_text(_unit.o -> 'schemas'));
      _added := _added || case when _unit.installed is not true then array[_unit.name] end;
      _digests := _digests || pg_catalog.jsonb_build_object(_unit.name, _unit.o -> 'digest');
    else
      _parts := _parts || ('without_' || _unit.name);
      _digests := _digests || pg_catalog.jsonb_build_object(_unit.name, _unit.o -> 'absent');
    end if;
  end loop;

  perform pg_catalog.set_config('holdfast.chosen_for', case when _known is null then 'new' else 'known' end, true);
  perform pg_catalog.set_config('holdfast.units', _units::text, true);
  perform pg_catalog.set_config('holdfast.parts', _parts::text, true);
  perform pg_catalog.set_config('holdfast.schemas', _schemas::text, true);
  perform pg_catalog.set_config('holdfast.added', _added::text, true);
  perform pg_catalog.set_config('holdfast.digests', _digests::text, true);
end
$$;
