-- Refuses a task that does not exist or that the session may not change. Both give the same error, so that ids cannot
-- be probed. An operator may change every task, and so may a worker's handlers; a client, and a function of a process,
-- may change those of its namespace.
-- Internal.
create or replace function queues.check_task_owner(task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from queues.task t
  where t.task_id = check_task_owner.task_id
    and (t.namespace = queues.namespace() or queues.has_role('operator')
      or queues.has_role('worker'));
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no task %s', coalesce(task_id::text, 'null')),
      hint = 'Look for it with queues.task_status; it may have been removed by retention, or belong to another '
        'namespace.';
  end if;
end
$$;

comment on function queues.check_task_owner(uuid) is
  'Refuses a task that does not exist or that the session may not change.';
