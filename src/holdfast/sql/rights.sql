-- The rights of installation: the roles and what they may do, or the single login that does everything.
-- A section is applied by itself.

-- section: roles
-- The roles, none of which can log in. Logins are granted one or more of them; holdfast_owner is granted only to the
-- login that migrates, and holdfast_caller to no login: functions of processes are called as this role. If this login
-- lacks rights, one error lists all statements for an administrator.
do $$
declare
  _login constant text := current_user;
  _superuser constant boolean := (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user);
  _creates_roles constant boolean := (
    select r.rolsuper or r.rolcreaterole from pg_catalog.pg_roles r where r.rolname = current_user);
  -- From PostgreSQL 16 on, the creator of a role is its member, but may neither act as it nor grant another's role.
  _since_16 constant boolean := pg_catalog.current_setting('server_version_num')::integer >= 160000;
  _statement text;
  _for_dba text[] := '{}';
  _role text;
  _member text;
  _needed text;
begin
  foreach _role in array array[
    'holdfast_owner', 'holdfast_client', 'holdfast_process', 'holdfast_worker',
    'holdfast_dispatcher', 'holdfast_operator', 'holdfast_reader', 'holdfast_caller']
  loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname = _role) then
      _statement := pg_catalog.format('create role %I nologin', _role);
      if _creates_roles then
        execute _statement;
      else
        _for_dba := _for_dba || _statement;
      end if;
    end if;
  end loop;

  for _role, _member, _needed in
    values ('holdfast_owner', _login, case when _since_16 then 'set' else 'member' end),
      ('holdfast_client', 'holdfast_process', 'member'),
      ('holdfast_reader', 'holdfast_operator', 'member'),
      -- So that a login that is granted the owner can also run workers, the server and the dispatcher.
      ('holdfast_process', 'holdfast_owner', 'member'),
      ('holdfast_worker', 'holdfast_owner', 'member'),
      ('holdfast_dispatcher', 'holdfast_owner', 'member'),
      ('holdfast_operator', 'holdfast_owner', 'member'),
      -- So that the owner can replace internal.call_function, which belongs to this role.
      ('holdfast_caller', 'holdfast_owner', case when _since_16 then 'set' else 'member' end)
  loop
    _statement := pg_catalog.format('grant %I to %I', _role, _member);
    if pg_catalog.to_regrole(_role) is null or pg_catalog.to_regrole(pg_catalog.quote_ident(_member)) is null then
      _for_dba := _for_dba || _statement;
    elsif pg_catalog.pg_has_role(_member, _role, _needed) then
      continue;
    elsif _superuser or (_creates_roles and not _since_16)
      or pg_catalog.pg_has_role(_login, _role, 'member with admin option')
    then
      execute _statement;
    else
      _for_dba := _for_dba || _statement;
    end if;
  end loop;

  if not pg_catalog.has_database_privilege(_login, pg_catalog.current_database(), 'create')
    and (pg_catalog.to_regnamespace('queues') is null or pg_catalog.to_regnamespace('internal') is null)
  then
    _for_dba := _for_dba
      || pg_catalog.format('grant create on database %I to %I', pg_catalog.current_database(), _login);
  end if;

  if _for_dba <> '{}' then
    raise exception using message = pg_catalog.format(
      'The login %I may not prepare the database %I. Have a DBA run this, then migrate again:', _login,
      pg_catalog.current_database()) || e'\n\n  ' || pg_catalog.array_to_string(_for_dba, e';\n  ') || ';'
      || case when _creates_roles or pg_catalog.to_regrole('holdfast_owner') is not null then ''
        else e'\n\nWhere roles cannot be had, holdfast migrate --single-login installs without them.' end;
  end if;
end
$$;

-- section: single_login
-- Instead of roles: the login that migrates owns everything and does everything. It needs one right.
do $$
begin
  if (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user) then
    raise exception using message = pg_catalog.format(
      'The login %I is a superuser. Its functions would run with all rights, and it can create roles. Leave out '
      '--single-login, or connect as the login of your application.', current_user);
  elsif not pg_catalog.has_database_privilege(current_user, pg_catalog.current_database(), 'create')
    and (pg_catalog.to_regnamespace('queues') is null or pg_catalog.to_regnamespace('internal') is null)
  then
    raise exception using message = pg_catalog.format(
      'The login %I may not prepare the database %I. Have a DBA run this, then migrate again:', current_user,
      pg_catalog.current_database())
      || pg_catalog.format(e'\n\n  grant create on database %I to %I;', pg_catalog.current_database(), current_user);
  end if;
end
$$;

-- section: revokes
-- Revokes what an older release granted to PUBLIC and the roles, if there is anything: a revoke writes to the catalog.
-- A single login takes everything from everybody else, also what its default privileges give them on all it creates.
do $$
declare
  _single constant boolean := pg_catalog.current_setting('holdfast.owner') <> 'holdfast_owner';
  _granted record;
begin
  for _granted in
    select distinct held.kind, held.name,
      case held.grantee when 0 then 'public' else held.grantee::pg_catalog.regrole::text end as grantee
    from (
      select 'schema' as kind, n.oid::pg_catalog.regnamespace::text as name, n.nspowner as owner, a.grantee
      from pg_catalog.pg_namespace n cross join lateral pg_catalog.aclexplode(n.nspacl) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      union all
      select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::pg_catalog.regclass::text, c.relowner,
        a.grantee
      from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      cross join lateral (
        select e.grantee from pg_catalog.aclexplode(c.relacl) e
        union all
        select e.grantee from pg_catalog.pg_attribute t cross join lateral pg_catalog.aclexplode(t.attacl) e
        where t.attrelid = c.oid) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      union all
      select 'routine', p.oid::pg_catalog.regprocedure::text, p.proowner, a.grantee
      from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
      cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      union all
      select 'type', t.oid::pg_catalog.regtype::text, t.typowner, a.grantee
      from pg_catalog.pg_type t join pg_catalog.pg_namespace n on n.oid = t.typnamespace
      left join pg_catalog.pg_class c on c.oid = t.typrelid
      cross join lateral pg_catalog.aclexplode(coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner))) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
        and t.typcategory <> 'A' and t.typtype <> 'm' and coalesce(c.relkind, 'c') = 'c'
    ) held
    where held.grantee <> held.owner and (_single or held.grantee = 0 or held.grantee in (
      select r.oid from pg_catalog.pg_roles r
      where r.rolname in ('holdfast_client', 'holdfast_process', 'holdfast_worker', 'holdfast_dispatcher',
        'holdfast_operator', 'holdfast_reader', 'holdfast_caller')))
  loop
    execute pg_catalog.format('revoke all on %s %s from %s cascade', _granted.kind, _granted.name, _granted.grantee);
  end loop;
end
$$;

-- section: grants
-- All rights of the roles. No role has a right on a table; only the owner may use what is not granted here.

-- The function that calls those of processes belongs to a role without rights. This role needs the right to create in
-- the schema only for this moment. It may not use the schema, so that no code that runs as this role can change the
-- function.
do $$
begin
  if (select p.proowner from pg_catalog.pg_proc p
    where p.oid = 'internal.call_function(text, jsonb)'::pg_catalog.regprocedure)
    <> 'holdfast_caller'::pg_catalog.regrole
  then
    grant create on schema internal to holdfast_caller;
    alter function internal.call_function(text, jsonb) owner to holdfast_caller;
    revoke create on schema internal from holdfast_caller;
  end if;
end
$$;

grant usage on schema queues to
  holdfast_client, holdfast_process, holdfast_worker, holdfast_dispatcher, holdfast_operator, holdfast_reader;
grant usage on schema internal to holdfast_worker;

grant execute on function
  queues.enqueue, queues.enqueue_many, queues.enqueue_for_client, queues.enqueue_simple,
  queues.cancel, queues.reschedule, queues.explain, queues.list_tasks, queues.find_tasks, queues.watch
to holdfast_client;
grant execute on function queues.act_on_tasks to holdfast_client, holdfast_operator;
grant execute on function
  queues.enqueue_for_process, queues.refuse_change
to holdfast_process;

grant execute on function
  queues.claim, queues.next_due, queues.dequeue_next_available_task, queues.heartbeat, queues.finish, queues.release,
  queues.sweep, queues.register_worker, queues.retire_worker, queues.mark_idle, queues.hold_wakeups,
  queues.release_wakeups, queues.notify_idle, queues.lead, queues.resign, queues.rest, queues.fleet_state,
  queues.explain, queues.recover_workers, queues.prune, queues.record_killed,
  queues.record_environment, queues.register_types, queues.unserved_queues, queues.record_activity
to holdfast_worker;
grant execute on function internal.run_function to holdfast_worker;
grant execute on function queues.actor to holdfast_process;
grant execute on function queues.last_error, queues.handled_elsewhere to holdfast_worker;

grant execute on function queues.add_schedule, queues.add_schedule_for_client,
  queues.declare_schedules to holdfast_client;
grant execute on function queues.add_schedule_for_process to holdfast_process;
grant execute on function
  queues.due_schedules, queues.next_firing, queues.decide_schedules, queues.prune_firings
to holdfast_worker;
grant execute on function queues.health, queues.count_activity to holdfast_reader;
grant execute on function queues.pause_schedule, queues.resume_schedule, queues.remove_schedule, queues.run_schedule
to holdfast_client, holdfast_operator;
grant select on queues.schedule_status, queues.schedule_event to holdfast_client, holdfast_reader;

grant execute on function
  queues.cancel, queues.retry, queues.delete_task, queues.restore_task, queues.reschedule, queues.pause,
  queues.resume, queues.sweep, queues.recover_workers, queues.set_retention, queues.drop_retention, queues.prune
to holdfast_operator;

grant execute on function queues.replay to holdfast_operator;
grant select on queues.provenance, queues.registered_type to holdfast_reader;
grant execute on function queues.held_by to holdfast_reader;

grant execute on function queues.explain, queues.list_tasks, queues.find_tasks, queues.watch to holdfast_reader;
grant execute on function queues.count_tasks to holdfast_client, holdfast_reader;
grant execute on function queues.list_error_groups to holdfast_reader;
grant execute on function queues.may_read_all, queues.has_role, queues.namespace, queues.clock, queues.status_of,
  queues.step_kind, queues.spec_hash
  to holdfast_reader, holdfast_client, holdfast_worker;
grant select on
  queues.task_status, queues.task_event, queues.task_error, queues.queue_status, queues.worker_status,
  queues.worker_loss, queues.retention_policy, queues.queue_act
to holdfast_reader;
grant select on queues.task_status, queues.task_event, queues.task_error to holdfast_client;

grant execute on function queues.set_limit, queues.drop_limit to holdfast_operator;
grant execute on function queues.tidy_lanes to holdfast_worker;
grant execute on function queues.tokens_at, queues.list_waiting_keys to holdfast_reader;
grant select on queues.limit_status to holdfast_reader;

grant execute on function queues.due_chores, queues.do_chores, queues.postpone_chore
  to holdfast_worker, holdfast_operator;

-- Durable workflows. A worker records and reads only under its lease.
grant execute on function queues.record_step, queues.record_steps, queues.read_steps, queues.read_results,
  queues.wake_waiting, queues.wake_joined, queues.record_changes, queues.start_children
to holdfast_worker;
grant execute on function queues.signal, queues.signal_key, queues.fork, queues.batch_members
to holdfast_client, holdfast_operator;
grant execute on function queues.enqueue_after, queues.enqueue_unique to holdfast_client;
-- The server verifies the signature of a link before it calls these.
grant execute on function queues.read_callback, queues.answer_callback to holdfast_operator;
grant execute on function queues.run_timeline, queues.related_to, queues.children_of
to holdfast_client, holdfast_reader;
grant select on queues.step_status, queues.signal_status,
  queues.wait_status to holdfast_client, holdfast_reader;

-- Which units are installed.
grant execute on function queues.installed_units
to holdfast_client, holdfast_worker, holdfast_dispatcher, holdfast_reader;

-- Only administrators, that is, members of holdfast_owner, assign logins to namespaces: no grant.
grant select on queues.namespace_member to holdfast_client, holdfast_reader;

-- For the HTTP server, too. Its login is a member of holdfast_operator, and of holdfast_client if it enqueues tasks.
grant execute on function queues.take_sample to holdfast_worker, holdfast_operator;
grant execute on function queues.watch_many to holdfast_client, holdfast_reader;
grant execute on function queues.tasks_of, queues.task_events_of, queues.task_errors_of
to holdfast_client, holdfast_reader;
grant execute on function queues.list_activity, queues.list_activity_of, queues.rank_types to holdfast_reader;
grant select on queues.access_event to holdfast_operator;
