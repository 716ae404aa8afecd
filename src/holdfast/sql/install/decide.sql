-- Refuses schemas of another owner and a schema newer than this release; else sets holdfast.action to what is to be
-- done: install, upgrade, replay or nothing. Also sets holdfast.replaced to the parts whose functions and views are
-- replaced: those that have changed, or all of them.
do $$
declare
  _owner constant oid := pg_catalog.to_regrole(
    pg_catalog.quote_ident(pg_catalog.current_setting('holdfast.owner')));
  _caller constant oid := case when pg_catalog.current_setting('holdfast.owner') = 'holdfast_owner'
    then pg_catalog.to_regrole('holdfast_caller') end;
  _version constant integer := pg_catalog.current_setting('holdfast.version');
  _release constant text := pg_catalog.current_setting('holdfast.release');
  _force constant boolean := pg_catalog.current_setting('holdfast.force');
  _parts constant text[] := pg_catalog.current_setting('holdfast.parts');
  _digests constant jsonb := pg_catalog.current_setting('holdfast.digests');
  _foreign text;
  _installed record;
  _changed text[];
begin
  select pg_catalog.string_agg(found.what, ', ' order by found.what) into _foreign
  from (
    select pg_catalog.format('schema %s, which belongs to %s', n.nspname, n.nspowner::pg_catalog.regrole) as what
    from pg_catalog.pg_namespace n
    where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[]) and n.nspowner <> _owner
    union all
    select pg_catalog.pg_describe_object(d.classid, d.objid, 0)
    from pg_catalog.pg_namespace n
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass and d.refobjid = n.oid
    where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      and not exists (
        select from pg_catalog.pg_shdepend o
        where o.dbid = (select db.oid from pg_catalog.pg_database db where db.datname = pg_catalog.current_database())
          and o.classid = d.classid and o.objid = d.objid and o.deptype = 'o' and o.refobjid in (_owner, _caller))
    limit 10
  ) found;
  if _foreign is not null then
    raise exception using message = pg_catalog.format(
      'The schemas queues, internal and comms are for Holdfast alone, and this database has %s. '
      'Move that to another schema, or give Holdfast a database of its own.', _foreign);
  end if;

  if pg_catalog.to_regclass('queues.installation') is null then
    select pg_catalog.string_agg(pg_catalog.pg_describe_object(found.classid, found.objid, 0), ', ') into _foreign
    from (
      select d.classid, d.objid from pg_catalog.pg_depend d
      where d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
        and d.refobjid in (
          select n.oid from pg_catalog.pg_namespace n
          where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[]))
      limit 10
    ) found;
    if _foreign is not null then
      raise exception using message = pg_catalog.format(
        'This database has %s but no queues.installation, so no release of Holdfast made it. '
        'Move that to another schema, or give Holdfast a database of its own.', _foreign);
    end if;
    perform pg_catalog.set_config('holdfast.action', 'install', true);
    perform pg_catalog.set_config('holdfast.replaced', _parts::text, true);
    perform pg_catalog.set_config('holdfast.installed_version', '0', true);
    return;
  end if;

  if pg_catalog.current_setting('holdfast.chosen_for') = 'new' then
    raise exception using errcode = '40001', message = 'another migration has just installed the schema';
  end if;
  select i.version, i.release into _installed
  from queues.installation i order by i.version desc limit 1;
  if _installed.version is null then
    raise exception using message =
      'queues.installation is empty, so the version of this schema is unknown. Put its row back, or restore '
        'the database.';
  elsif _installed.version > _version then
    raise exception using message = pg_catalog.format(
      'This database has version %s of the schema, made by Holdfast %s; this is Holdfast %s, which knows version %s. '
      'Upgrade Holdfast here.', _installed.version, _installed.release, _release, _version);
  elsif not _force
    and pg_catalog.regexp_split_to_array(pg_catalog.regexp_replace(_installed.release, '[^0-9.].*', ''),
      '\.')::integer[]
      > pg_catalog.regexp_split_to_array(pg_catalog.regexp_replace(_release, '[^0-9.].*', ''), '\.')::integer[]
  then
    raise exception using message = pg_catalog.format(
      'The functions in this database are those of Holdfast %s, and this is Holdfast %s. '
      'Upgrade Holdfast here, or go back to the older functions on purpose with --force.',
      _installed.release, _release);
  end if;

  if not _force and _installed.version = _version then
    select pg_catalog.array_agg(p.part) into _changed
    from pg_catalog.unnest(_parts) p(part)
    left join queues.unit u on u.unit = pg_catalog.regexp_replace(p.part, '^without_', '')
    where u.digest is distinct from _digests ->> pg_catalog.regexp_replace(p.part, '^without_', '');
  else
    _changed := _parts;
  end if;
  perform pg_catalog.set_config('holdfast.installed_version', _installed.version::text, true);
  perform pg_catalog.set_config('holdfast.replaced', coalesce(_changed, '{}')::text, true);
  perform pg_catalog.set_config('holdfast.action', case
    when _installed.version < _version then 'upgrade' when _changed is not null then 'replay' else 'nothing' end, true);
end
$$;
