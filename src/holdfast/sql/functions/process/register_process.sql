-- Registers a business process, or changes its registration, on behalf of its owner. The leader then repairs it, health
-- checks it, and clients can wait for it. One role must own its functions and its root table; it must be a member of
-- holdfast_process and not a superuser. The caller must be that role or a member of it. The supervisor of the kind
-- python is not a function but a type of tasks. With a kickoff, operators can start an instance from the dashboard.
-- For holdfast_process. Locks: the row of the process.
create or replace function queues.register_process(
  process text, root_table text, supervisor text, repair text, cancel text, history text, kind text default 'attempts',
  kickoff text default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _schema constant text := split_part(process, '.', 1);
  _owner oid;
begin
  if process is null or process !~ '^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$' then
    raise exception using errcode = 'QF400',
      message = format('%s cannot be the name of a process', coalesce(to_json(left(process, 130))::text, 'null')),
      hint = 'Give the name of its schema, or schema.name if a schema has several.';
  elsif kind is null or kind not in ('attempts', 'decision', 'python') then
    raise exception using errcode = 'QF400', message = 'kind must be attempts, decision or python';
  elsif kind = 'python' and coalesce(supervisor, '') !~ ('^' || _schema || '\.[a-z_][a-z0-9_.]{0,62}$') then
    raise exception using errcode = 'QF400',
      message = format('the supervisor of %s must be a type of tasks that begins with %s.', process, _schema);
  end if;
  select c.relowner into _owner from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = _schema and c.relname = root_table and c.relkind in ('r', 'p');
  if not found then
    raise exception using errcode = 'QF400',
      message = format('there is no table %s.%s for the process %s', _schema, coalesce(root_table, 'null'), process);
  end if;
  perform queues.check_process_owner(process, _owner);
  if (select r.rolsuper from pg_roles r where r.oid = _owner)
    or not queues.has_role('process', pg_get_userbyid(_owner))
  then
    raise exception using errcode = 'QF403',
      message = format('the owner %s of %s is a superuser, or not a member of holdfast_process',
        _owner::regrole, process);
  end if;
  if exists (
    select from (values ('supervisor', supervisor, kind <> 'python'), ('repair', repair, true),
      ('cancel', cancel, true), ('history', history, true), ('kickoff', kickoff, kickoff is not null)
    ) f(use, name, is_function)
    where case when f.is_function then split_part(f.name, '.', 1) is distinct from _schema
      or queues.process_function(f.name, f.use) <> _owner end)
  then
    raise exception using errcode = 'QF403',
      message = format('the functions of %s must be in the schema %s and belong to %s', process, _schema,
        _owner::regrole);
  end if;
  insert into queues.process as p (process, kind, schema_name, root_table, supervisor, repair, cancel, history,
    kickoff, registered_at, registered_by)
  values (process, kind, _schema, root_table, supervisor, repair, cancel, history, kickoff, queues.clock(),
    session_user)
  on conflict on constraint process_pkey do update
  set kind = excluded.kind, root_table = excluded.root_table, supervisor = excluded.supervisor,
    repair = excluded.repair, cancel = excluded.cancel, history = excluded.history,
    kickoff = excluded.kickoff, registered_at = excluded.registered_at, registered_by = excluded.registered_by
  where (p.kind, p.root_table, p.supervisor, p.repair, p.cancel, p.history, p.kickoff)
    is distinct from (excluded.kind, excluded.root_table, excluded.supervisor, excluded.repair, excluded.cancel,
      excluded.history, excluded.kickoff);
end
$$;

comment on function queues.register_process(text, text, text, text, text, text, text, text) is
  'Registers a business process, or changes its registration, on behalf of its owner.';
