-- Locks a schedule and returns it; refuses one that does not exist or that the session may not change. Both give the
-- same error. A client may change the schedules of its namespace; an operator may change all, and must name the
-- namespace if the name is ambiguous.
-- Internal. Locks: the schedule.
create or replace function queues.lock_own_schedule(name text, namespace text)
returns queues.schedule
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespaces constant text[] := array(
    select s.namespace from queues.schedule s
    where s.name = lock_own_schedule.name
      and (lock_own_schedule.namespace is null or s.namespace = lock_own_schedule.namespace)
      and (s.namespace = queues.namespace() or queues.has_role('operator'))
    order by s.namespace);
  _found queues.schedule;
begin
  if cardinality(_namespaces) > 1 then
    raise exception using errcode = 'QF400',
      message = format('schedule %s exists in %s namespaces: %s', to_json(name), cardinality(_namespaces),
        array_to_string(_namespaces, ', ')),
      hint = 'Name the namespace: namespace => ''…'', or --namespace.';
  end if;
  select s.* into _found from queues.schedule s where s.name = lock_own_schedule.name
    and s.namespace = _namespaces[1] for update;
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no schedule %s', coalesce(to_json(name)::text, 'null'))
        || coalesce(' in namespace ' || to_json(namespace)::text, ''),
      hint = 'Look for it with queues.schedule_status; it may belong to another namespace.';
  end if;
  return _found;
end
$$;

comment on function queues.lock_own_schedule(text, text) is
  'Locks a schedule and returns it; refuses one that does not exist or that the session may not change.';
