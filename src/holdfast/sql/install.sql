-- What an installation or upgrade does around the SQL of the engine, in the order in which it is done. A section is
-- applied by itself; migration_steps.py says when. Settings of the transaction (holdfast.…) carry what one section has
-- found out to the others.

-- section: begin
-- A separate statement removes the login's timeouts, because a statement_timeout counts from the start of its
-- statement.
do $$
begin
  perform pg_catalog.set_config(s.name, '0', true)
  from pg_catalog.pg_settings s
  where s.name in ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout');
end
$$;

do $$
begin
  if pg_catalog.current_setting('server_version_num')::integer < 150000 then
    raise exception using message = pg_catalog.format(
      'PostgreSQL 15 or later is needed, and this is %s.', pg_catalog.current_setting('server_version'));
  elsif pg_catalog.current_setting('server_encoding') <> 'UTF8' then
    raise exception using message = pg_catalog.format(
      'A database in the encoding UTF8 is needed, and this one is in %s. Create one with encoding ''UTF8''.',
      pg_catalog.current_setting('server_encoding'));
  end if;
end
$$;

-- section: check_mode
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

-- section: schemas
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

-- section: wait_for_others
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

-- section: choose_units
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

-- section: decide
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

-- section: take_tables
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

-- section: defaults
comment on schema queues is 'Holdfast: the engine. Every change of state is a function here.';
comment on schema internal is 'Holdfast: the function runner.';

-- Only the global form works: a global default of PUBLIC cannot be revoked per schema. A single login keeps its
-- defaults, because they also apply to what it creates in other schemas.
do $$
begin
  if pg_catalog.current_setting('holdfast.owner') = 'holdfast_owner' then
    alter default privileges for role holdfast_owner revoke execute on functions from public;
    alter default privileges for role holdfast_owner revoke usage on types from public;
  end if;
end
$$;

-- section: find_stale_functions
-- Finds functions that "create or replace" cannot replace: those that are no longer wanted here, and those of the parts
-- to be replaced whose parameters or result have changed. To compare, each header is declared once under a temporary
-- name. If a view has to be dropped for that, all of them are, and every part is replaced.
do $$
declare
  _parts constant text[] := pg_catalog.current_setting('holdfast.parts');
  _replaced constant text[] := pg_catalog.current_setting('holdfast.replaced');
  _wanted constant jsonb := (
    select pg_catalog.jsonb_agg(w)
    from pg_catalog.jsonb_array_elements(pg_catalog.current_setting('holdfast.functions')::jsonb) w
    where w ->> 'part' = any (_parts));
  _function record;
  _stale oid[];
begin
  _stale := array(
    select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      and not exists (
        select from pg_catalog.jsonb_array_elements(_wanted) w where w ->> 'name' = n.nspname || '.' || p.proname));

  for _function in
    select w ->> 'header' as header, live.oid, live.defaults
    from pg_catalog.jsonb_array_elements(_wanted) w
    join (
      select p.oid, n.nspname || '.' || p.proname as name, p.pronargdefaults as defaults
      from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
    ) live on live.name = w ->> 'name'
    where w ->> 'part' = any (_replaced)
  loop
    begin
      execute pg_catalog.format('create function queues.holdfast_probe%s language plpgsql as ''''', _function.header);
      -- Looked up by name each time: a constant would keep the oid of the first one for the whole loop.
      if not exists (
        select from pg_catalog.pg_proc o, pg_catalog.pg_proc n
        where o.oid = _function.oid and n.oid = pg_catalog.to_regproc('queues.holdfast_probe')
          and o.prokind = n.prokind and o.proargtypes = n.proargtypes and o.provariadic = n.provariadic
          and o.prorettype = n.prorettype and o.proretset = n.proretset and o.pronargdefaults <= n.pronargdefaults
          and o.proallargtypes is not distinct from n.proallargtypes
          and o.proargmodes is not distinct from n.proargmodes
          and o.proargnames is not distinct from n.proargnames)
      then
        _stale := _stale || _function.oid;
      end if;
      drop function queues.holdfast_probe;
    exception when undefined_object or undefined_table then
      -- Its types do not exist yet, so this cannot be the same function.
      _stale := _stale || _function.oid;
    end;
  end loop;

  perform pg_catalog.set_config('holdfast.stale_functions', _stale::text, true);
  perform pg_catalog.set_config('holdfast.drop_views', exists (
    select from pg_catalog.pg_depend d
    where d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
      and d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.refobjid = any (_stale))::text, true);
  if pg_catalog.current_setting('holdfast.drop_views')::boolean then
    perform pg_catalog.set_config('holdfast.replaced', _parts::text, true);
  end if;
end
$$;

-- section: drop_stale_functions
do $$
declare
  _dropped text;
begin
  for _dropped in
    select p.oid::pg_catalog.regprocedure from pg_catalog.pg_proc p
    where p.oid = any (pg_catalog.current_setting('holdfast.stale_functions')::oid[])
  loop
    execute 'drop routine ' || _dropped;
  end loop;
end
$$;

-- section: protect_facts
-- Protects the facts of the engine, in each unit that is installed. Retention may delete them: its functions set
-- holdfast.retention for that statement. Of a task that goes on by ctx.continue_as, begin_generations changes the
-- payload, and sets holdfast.continues for that statement.
do $$
declare
  _table text;
begin
  foreach _table in array array[
    'task', 'error', 'act', 'schedule_act', 'subscription_act', 'schedule_firing',
    'worker_environment', 'access_act', 'outbox_event',
    'step', 'signal', 'child', 'change', 'generation']
  loop
    continue when pg_catalog.to_regclass('queues.' || _table) is null or exists (
      select from pg_catalog.pg_trigger t
      where t.tgrelid = pg_catalog.to_regclass('queues.' || _table) and t.tgname = 'append_only');
    execute pg_catalog.format(
      'create trigger append_only before update or truncate on queues.%I for each statement %s'
      'execute function queues.refuse_change()', _table, case when _table = 'task'
        then 'when (pg_catalog.current_setting(''holdfast.continues'', true) is distinct from ''on'') ' end);
    execute pg_catalog.format(
      'create trigger removed_by_retention_only before delete on queues.%I for each statement '
      'when (pg_catalog.current_setting(''holdfast.retention'', true) is distinct from ''on'') '
      'execute function queues.refuse_change()', _table);
    execute pg_catalog.format(
      'alter table queues.%I enable always trigger append_only, '
      'enable always trigger removed_by_retention_only', _table);
  end loop;
end
$$;

-- section: find_stale_views
-- Checks whether "create or replace" can replace the views: none may have been removed, and each of the parts to be
-- replaced may only have gained columns at its end. To compare, each is created once under a temporary name. If not,
-- all views are dropped, and every part is replaced.
do $$
declare
  _parts constant text[] := pg_catalog.current_setting('holdfast.parts');
  _replaced constant text[] := pg_catalog.current_setting('holdfast.replaced');
  _wanted constant jsonb := (
    select pg_catalog.jsonb_agg(w)
    from pg_catalog.jsonb_array_elements(pg_catalog.current_setting('holdfast.views')::jsonb) w
    where w ->> 'part' = any (_parts));
  _view record;
  _stale boolean;
begin
  _stale := exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[]) and c.relkind = 'v'
      and not exists (
        select from pg_catalog.jsonb_array_elements(_wanted) w where w ->> 'name' = n.nspname || '.' || c.relname));

  for _view in
    select w ->> 'query' as query, pg_catalog.to_regclass(w ->> 'name') as oid
    from pg_catalog.jsonb_array_elements(_wanted) w
    where w ->> 'part' = any (_replaced) and pg_catalog.to_regclass(w ->> 'name') is not null
  loop
    exit when _stale;
    begin
      execute pg_catalog.format('create view queues.holdfast_probe as %s', _view.query);
      _stale := exists (
        select from pg_catalog.pg_attribute o
        where o.attrelid = _view.oid and not exists (
          select from pg_catalog.pg_attribute n
          where n.attrelid = pg_catalog.to_regclass('queues.holdfast_probe') and n.attnum = o.attnum
            and n.attname = o.attname and n.atttypid = o.atttypid and n.atttypmod = o.atttypmod
            and n.attcollation = o.attcollation));
      drop view queues.holdfast_probe;
    exception when undefined_table or undefined_column then
      -- It reads another view that does not exist yet or will change.
      _stale := true;
    end;
  end loop;

  perform pg_catalog.set_config('holdfast.drop_views', _stale::text, true);
  if _stale then
    perform pg_catalog.set_config('holdfast.replaced', _parts::text, true);
  end if;
end
$$;

-- section: drop_stale_views
-- Drops all views, and the functions that return their rows, if one of them cannot be replaced; all of them are created
-- again. Never with cascade, so that a user's view built on ours stops the migration instead of disappearing.
do $$
declare
  _dropped text;
begin
  if not pg_catalog.current_setting('holdfast.drop_views')::boolean then
    return;
  end if;

  for _dropped in
    select distinct d.objid::pg_catalog.regprocedure
    from pg_catalog.pg_class c
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and d.refobjid = c.reltype
    join pg_catalog.pg_proc p on d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and p.oid = d.objid
    where c.relkind = 'v'
      and c.relnamespace = any (pg_catalog.current_setting('holdfast.schemas')::pg_catalog.regnamespace[])
      and p.pronamespace = any (pg_catalog.current_setting('holdfast.schemas')::pg_catalog.regnamespace[])
  loop
    execute 'drop routine ' || _dropped;
  end loop;

  select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', ') into _dropped
  from pg_catalog.pg_class c
  where c.relkind = 'v'
    and c.relnamespace = any (pg_catalog.current_setting('holdfast.schemas')::pg_catalog.regnamespace[]);
  if _dropped is not null then
    execute 'drop view ' || _dropped;
  end if;
end
$$;

-- section: record
insert into queues.installation (version, installed_at, release, digest)
values (
  pg_catalog.current_setting('holdfast.version')::integer, queues.clock(),
  pg_catalog.current_setting('holdfast.release'), pg_catalog.current_setting('holdfast.digest'))
on conflict (version) do update set
  installed_at = excluded.installed_at, release = excluded.release, digest = excluded.digest;

insert into queues.unit (unit, installed, changed_at, digest)
select d.key, d.key = any (pg_catalog.current_setting('holdfast.units')::text[]), queues.clock(), d.value
from pg_catalog.jsonb_each_text(pg_catalog.current_setting('holdfast.digests')::jsonb) d
where true
on conflict (unit) do update set
  installed = excluded.installed, changed_at = excluded.changed_at, digest = excluded.digest
where unit.digest <> excluded.digest;
