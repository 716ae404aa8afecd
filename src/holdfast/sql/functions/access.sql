-- Who a session is and what it may do: the roles and the namespace of a login, the name under which acts are recorded,
-- and calls of functions that belong to others: those of processes, and those that tasks of db_function name.
-- Invariant: the namespace follows from session_user, which no session can choose, or, while a function of another
-- owner is called, from the task or instance that it is called for. Such a function runs with the rights of its owner
-- or with none, never with those of the caller, and the session has no role of the engine meanwhile. The call fails,
-- and is undone, if it leaves something that would later run with the rights of the caller, or changes how the session
-- works.
-- Lock order: the row of a login; a call: nothing but what the called function locks. internal.call has one row per
-- transaction that is in a call; the transaction that wrote it deletes it.
-- At the same time: a login may be assigned to another namespace while it works; each transaction sees one of them. A
-- call knows only the row of its own transaction; one within another keeps the outer namespace. If a function is
-- replaced while it is called, its version before and after differs, and the call fails. To see that, it has to run
-- under read committed; only a history, which is always undone, may run under another level.

-- Returns whether a login is a member of one of the engine's roles: client, process, worker, dispatcher, operator,
-- reader or owner. In a database of a single login there are no roles: its owner, and the members of it, have all. The
-- session's own login has none during the call of a function of a process, so that the owner of the function does not
-- act with the roles of those who have it called.
create or replace function queues.has_role(role text, login name default session_user)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(pg_has_role(has_role.login,
    case when pg_get_userbyid(n.nspowner) = 'holdfast_owner' then to_regrole('holdfast_' || has_role.role)
      else n.nspowner end, 'member'), false)
    and (has_role.login <> session_user or (internal.current_call()).namespace is null)
  from pg_namespace n where n.nspname = 'queues'
$$;

-- Refuses a name of a namespace that is empty, too long or has more than one line.
create or replace function queues.check_namespace(namespace text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if namespace is null or octet_length(namespace) not between 1 and 500
    or namespace ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
  then
    raise exception using errcode = 'QF400', message = 'namespace must be 1 to 500 bytes on one line';
  end if;
end
$$;

-- Returns who acts: the login, and the person or program that the login says it acts for. The login cannot be forged;
-- the rest is a statement of the login, such as a web server that acts for its users. A function of a process acts as
-- whoever has it called, whatever it states itself.
create or replace function queues.actor()
returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((internal.current_call()).actor,
    session_user || coalesce(' for ' || nullif(left(current_setting('holdfast.acting_for', true), 200), ''), ''))
$$;

-- Returns the namespace of the session, which owns its tasks, idempotency keys, inbox events and schedules. It is the
-- login, unless an administrator has assigned the login to another namespace. The login is session_user, which neither
-- set role nor definer functions change. During the call of a function of a process, it is that of the task or instance
-- for which it is called.
-- For holdfast_client, holdfast_reader and holdfast_worker. Locks: none.
create or replace function queues.namespace()
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce((internal.current_call()).namespace,
    (select n.namespace from queues.namespace_login n where n.login = session_user::text),
    queues.namespace_of_login(session_user::text));
end
$$;

-- Returns the default namespace of a login: its name, with a prefix if it could be that of a token. No pinned path, so
-- that PostgreSQL can inline it: it runs once per enqueue.
create or replace function queues.namespace_of_login(login text)
returns text
language sql immutable parallel safe
as $$
  select case when pg_catalog.starts_with(login, 'token:') or pg_catalog.starts_with(login, 'login:')
    then 'login:' || login else login end
$$;

-- Assigns a login to a namespace, which other logins and tokens may share. Returns false if it already uses that
-- namespace. Existing tasks of the login stay in their namespace. For administrators, that is, members of
-- holdfast_owner. It is granted to no role, because a login in another application's namespace can read and cancel that
-- application's tasks.
-- Locks: the login's row.
create or replace function queues.add_to_namespace(login text, namespace text, reason text default null)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _former text;
begin
  perform queues.check_namespace(namespace);
  if not exists (select from pg_roles r where r.rolname = add_to_namespace.login and r.rolcanlogin) then
    raise exception using errcode = 'QF404',
      message = format('there is no login %s', coalesce(to_json(login)::text, 'null')),
      hint = 'Create it first: create role NAME login.';
  end if;
  insert into queues.namespace_login (login, namespace, added_at, added_by)
  values (login, namespace, _now, queues.actor())
  on conflict do nothing;
  if not found then
    select n.namespace into _former from queues.namespace_login n where n.login = add_to_namespace.login;
    if _former is distinct from add_to_namespace.namespace then
      raise exception using errcode = 'QF409',
        message = format('login %s already uses namespace %s', to_json(login), to_json(_former)),
        hint = 'A login uses one namespace. Remove it from that one first: holdfast namespaces remove LOGIN';
    end if;
    return false;
  end if;
  perform queues.renew_routes();
  insert into queues.access_act (act, occurred_at, actor, reason)
  values ('namespace_joined', _now, queues.actor(),
    left(format('login %s, namespace %s', login, namespace) || coalesce(': ' || reason, ''), 2000));
  return true;
end
$$;

-- Assigns a login to its own namespace again, and returns false if it already has it. Existing tasks of the login stay
-- in their namespace. For administrators, that is, members of holdfast_owner.
-- Locks: the login's row.
create or replace function queues.remove_from_namespace(login text, reason text default null)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _former text;
begin
  delete from queues.namespace_login n where n.login = remove_from_namespace.login returning n.namespace into _former;
  if not found then
    return false;
  end if;
  perform queues.renew_routes();
  insert into queues.access_act (act, occurred_at, actor, reason)
  values ('namespace_left', queues.clock(), queues.actor(),
    left(format('login %s, namespace %s', login, _former) || coalesce(': ' || reason, ''), 2000));
  return true;
end
$$;

-- Calls a business function by name and returns its envelope. The function runs with the rights of its owner, and never
-- with those of the worker. Missing and forbidden functions give the same error, so that names cannot be probed. What
-- it does in the engine, it does for the namespace of the task for which it is called, or of the instance of a process
-- with this wait key; without one, for that of the caller.
-- For holdfast_worker. Locks: what the function locks.
create or replace function internal.run_function(function_name text, payload jsonb, task_id uuid default null)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespace constant text := coalesce(
    (select t.namespace from queues.task t where t.task_id = run_function.task_id),
    queues.namespace_of_instance(run_function.task_id));
begin
  if task_id is not null and _namespace is null then
    raise exception using errcode = 'QF404', message = format('there is no task %s', task_id),
      hint = 'It may have been removed by retention.';
  elsif (queues.find_process_function(function_name, 'task')).owner is null then
    raise exception using errcode = 'QF404',
      message = format('there is no function %s that may be run',
        coalesce(to_json(left(function_name, 130))::text, 'null')),
      hint = 'It must be schema.name(jsonb) returns jsonb, security definer, with search_path = pg_catalog, pg_temp, '
        'not executable by PUBLIC, and granted to holdfast_caller, also the use of its schema.';
  end if;
  return internal.call_checked(function_name, 'task', payload, _namespace);
end
$$;

-- Calls a function of somebody else through internal.call_function, and returns its answer as a document. Meanwhile,
-- the session acts for the given namespace, or for its own, and has no role of the engine. Refuses a function that its
-- owner has replaced meanwhile, one that changes settings of the session, and one that leaves something behind that
-- would run its code later as the caller. Whatever a history has changed is undone.
-- Internal. Locks: what the function locks.
create or replace function internal.call_checked(
  function_name text, use text, arguments jsonb, namespace text default null)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _before constant text[] := array(select i::text from internal.session_items() i);
  -- The function cannot know this path. If it has set one for the session, this one is not in force afterwards.
  _path constant text := set_config('search_path', 'pg_catalog, pg_temp, ' || gen_random_uuid(), true);
  _acting_for constant text := current_setting('holdfast.acting_for', true);
  _settings text[];
  _began boolean;
  _expression text;
  _version text;
  _left text;
  _answer jsonb;
  _undo boolean := false;
begin
  select f.expression, f.version into _expression, _version from queues.find_process_function(function_name, use) f;
  if _version is null then
    raise exception using errcode = 'QF412', message = format('%s was dropped or changed just now', function_name);
  elsif use <> 'history' and current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF400',
      message = format('%s must be called in a transaction that is read committed', function_name),
      hint = 'Otherwise what its owner has changed since the transaction began cannot be seen.';
  end if;
  begin
    _began := internal.begin_call(namespace);
    -- As for the path: only a value that the function cannot know shows that it has set none for the session.
    perform set_config('holdfast.acting_for', gen_random_uuid()::text, true);
    _settings := internal.session_settings();
    _answer := internal.call_function(format(case use
      when 'history' then 'select jsonb_agg(jsonb_build_array(h.at, h.what, h.reason, h.task_id) order by h.place)
        from (select f.*, row_number() over () as place from %s f(at, what, reason, task_id)
          order by place desc limit ($1 ->> 1)::integer) h'
      when 'task' then 'select %s' else 'select to_jsonb(%s)' end, _expression), arguments);
    if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) _path then
      raise exception using errcode = 'QF412',
        message = pg_catalog.format('%s sets the search_path of the session of its caller', function_name),
        hint = 'Use the set clause of create function.';
    end if;
    -- What it enqueues makes the commit wait for the disk: see commit_to_disk.
    select string_agg(split_part(s, ' = ', 1), ', ') into _left from unnest(internal.session_settings()) s
    where s <> all (_settings || 'synchronous_commit = on'::text);
    if _left is not null then
      raise exception using errcode = 'QF412',
        message = format('%s changes %s for the session or transaction of its caller', function_name, _left),
        hint = 'Use the set clause of create function.';
    end if;
    if _began then
      perform internal.end_call();
    end if;
    perform set_config('holdfast.acting_for', _acting_for, true);
    select string_agg(distinct i.kind, ', ') into _left from internal.session_items() i
    where i::text <> all (_before);
    if _left is not null then
      raise exception using errcode = 'QF412',
        message = format('%s leaves %s in the session or transaction of its caller', function_name, _left),
        hint = 'It would run later with the rights of the caller. Have the function do without it.';
    elsif (queues.find_process_function(function_name, use)).version is distinct from _version then
      raise exception using errcode = 'QF412',
        message = format('%s was replaced while it was called, so the call was undone', function_name);
    elsif use = 'history' then
      _undo := true;
      raise exception 'undo';
    end if;
  exception when others or query_canceled or assert_failure then
    -- A rollback does not remove prepared statements.
    for _left in select i.name from internal.session_items() i
      where i.kind = 'a prepared statement' and i::text <> all (_before)
    loop
      execute format('deallocate %I', _left);
    end loop;
    if not _undo then
      raise;
    end if;
  end;
  return _answer;
end
$$;

-- Returns what a called function may have left in the session or transaction of its caller, and what would run its code
-- later as the caller: prepared statements, whose names drivers reuse; cursors that PostgreSQL evaluates at the commit;
-- types in the temporary schema, where PostgreSQL looks first; and changes of tables with triggers or exclusion
-- constraints that may be deferred, and with foreign keys that may be, on types of somebody's own, whose casts the
-- check calls. PostgreSQL 18 runs deferred triggers with the rights of the owner, but the engine would see the caller's
-- login. The mark differs if an item was replaced.
create or replace function internal.session_items()
returns table (kind text, name text, mark text)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select 'a prepared statement', s.name, s.prepare_time::text from pg_prepared_statements s where s.from_sql
  union all
  select 'a cursor that outlives the transaction', c.name, c.creation_time::text from pg_cursors c where c.is_holdable
  union all
  select 'a temporary object', d.classid::regclass::text, d.objid::text from pg_depend d
  where pg_my_temp_schema() <> 0 and d.refclassid = 'pg_namespace'::regclass and d.refobjid = pg_my_temp_schema()
  union all
  select 'a change of a table with a deferrable trigger or constraint', t.tgrelid::text, made.changes::text
  from pg_trigger t left join pg_constraint c on c.oid = t.tgconstraint
  cross join lateral (
    select pg_stat_get_xact_tuples_inserted(t.tgrelid) + pg_stat_get_xact_tuples_updated(t.tgrelid)
      + pg_stat_get_xact_tuples_deleted(t.tgrelid) as changes) made
  where t.tgdeferrable and made.changes > 0
    and (not t.tgisinternal or c.contype = 'x' or c.contype = 'f' and exists (
      select from pg_attribute a where a.attrelid = c.conrelid and a.attnum = any (c.conkey) and a.atttypid >= 16384
        or a.attrelid = c.confrelid and a.attnum = any (c.confkey) and a.atttypid >= 16384))
$$;

-- Lets the session act for a namespace, without any role of the engine, until internal.end_call or a rollback. Returns
-- false if it does so already: a function of a process that calls another one keeps what it acts for.
-- Internal: called by internal.call_checked. Locks: nothing.
create or replace function internal.begin_call(namespace text)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if (internal.current_call()).namespace is not null then
    return false;
  end if;
  insert into internal.call (transaction_id, namespace, actor)
  values (pg_current_xact_id(), coalesce(begin_call.namespace, queues.namespace()), queues.actor());
  return true;
end
$$;

-- Returns the call of a function of a process that this transaction is in, or null. internal.call_checked writes the
-- row before such a call and deletes it afterwards, and no role has a right on the table, so the function can neither
-- remove nor forge it. A transaction without an id has written nothing, so it is in none: this also holds on a standby.
create or replace function internal.current_call()
returns internal.call
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
  _transaction_id constant xid8 := pg_current_xact_id_if_assigned();
  _call internal.call;
begin
  if _transaction_id is not null then
    select c.* into _call from internal.call c where c.transaction_id = _transaction_id;
  end if;
  return _call;
end
$$;

-- Returns the settings by which a called function could change what the session of its caller does later: time limits,
-- whether it may write, how it reads and writes values, and what the engine asks. All settings would take a
-- millisecond.
create or replace function internal.session_settings()
returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array_agg(s.name || ' = ' || coalesce(current_setting(s.name, true), ''))
  from unnest(array[
    'statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout',
    'idle_session_timeout', 'transaction_read_only', 'default_transaction_read_only', 'default_transaction_isolation',
    'default_transaction_deferrable', 'synchronous_commit', 'row_security', 'standard_conforming_strings',
    'backslash_quote', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone', 'bytea_output', 'xmlbinary',
    'extra_float_digits', 'array_nulls', 'transform_null_equals', 'check_function_bodies', 'default_tablespace',
    'temp_tablespaces', 'default_table_access_method', 'application_name', 'holdfast.acting_for', 'holdfast.role',
    'holdfast.quiet', 'holdfast.retention']) s(name)
$$;

-- Runs a statement that calls a function of somebody else. Belongs to holdfast_caller, which has no right except to
-- execute the functions of processes. So whatever the owner of the function makes of it, its code runs with the rights
-- of its owner or with none, and it cannot set another role, because PostgreSQL refuses that inside security definer.
-- Internal: only internal.call_checked calls it. holdfast_caller may not use this schema, so its code cannot alter
-- this.
create or replace function internal.call_function(statement text, arguments jsonb)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _answer jsonb;
begin
  execute statement into _answer using arguments;
  return _answer;
end
$$;

-- Gives the session its own namespace and roles again.
-- Internal: called by internal.call_checked. Locks: nothing.
create or replace function internal.end_call()
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
  delete from internal.call c where c.transaction_id = pg_current_xact_id()
$$;

-- Returns a function if a process may register it for this use (supervisor, repair, cancel, history or kickoff), or a
-- worker may call it for a task (use: task), otherwise nulls: its owner, the expression that calls it with $1, and its
-- version, which differs once its owner has replaced it. It is security definer with a pinned path, the only one of its
-- name, not executable by PUBLIC, and granted to holdfast_caller, as which it is called. The expression names all
-- arguments of a kickoff, so that no other function of that name can take its place. In a database of a single login,
-- that login calls the function, so the function and its schema have to be its own.
create or replace function queues.find_process_function(
  name text, use text, out owner oid, out expression text, out version text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.proowner, format('%I.%I(%s)', n.nspname, p.proname, case find_process_function.use
      when 'history' then '($1 ->> 0)::bigint'
      when 'cancel' then '($1 ->> 0)::bigint, $1 ->> 1'
      when 'kickoff' then (
        select string_agg(case i when 1 then '$1' else pg_get_function_arg_default(p.oid, i) end, ', ' order by i)
        from generate_series(1, p.pronargs) i)
      else '$1' end),
    concat_ws(' ', p.oid, p.xmin, n.xmin)
  from pg_proc p
  join pg_namespace n on n.oid = p.pronamespace
  join pg_proc caller on caller.oid = 'internal.call_function(text, jsonb)'::regprocedure
  where find_process_function.name ~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$'
    and n.nspname = split_part(find_process_function.name, '.', 1)
    and p.proname = split_part(find_process_function.name, '.', 2) and p.prokind = 'f' and p.provariadic = 0
    and case find_process_function.use
      when 'kickoff' then p.proargtypes[0] = 3802 and p.pronargs - p.pronargdefaults = 1
        and p.prorettype = 20 and not p.proretset and p.proallargtypes is null
        and not exists (select from unnest(p.proargtypes) t(type) where t.type >= 16384)
        and (p.proargdefaults is null or p.proargdefaults::text !~ '\{(?!CONST :)')
      when 'history' then p.proargtypes = '20' and p.prorettype = 2249 and p.proretset
        and p.proallargtypes = '{20,1184,25,25,2950}' and p.proargnames[2:] = '{at,what,reason,task_id}'
      when 'cancel' then p.proargtypes = '20 25' and p.prorettype = 25 and not p.proretset
      else p.proargtypes = '3802' and p.prorettype = 3802 and not p.proretset end
    and p.prosecdef and exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog, ?pg_temp$')
    and not has_function_privilege('public', p.oid, 'execute')
    and case when pg_get_userbyid(caller.proowner) = 'holdfast_caller'
      then has_schema_privilege(caller.proowner, n.oid, 'usage')
        and has_function_privilege(caller.proowner, p.oid, 'execute')
      else p.proowner = caller.proowner and n.nspowner = caller.proowner end
    and not exists (select from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname
      and o.oid <> p.oid)
$$;
