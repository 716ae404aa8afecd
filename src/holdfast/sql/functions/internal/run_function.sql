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
    (select i.namespace from queues.process_instance i where i.wait_key = run_function.task_id));
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

comment on function internal.run_function(text, jsonb, uuid) is
  'Calls a business function by name, with the rights of its owner, and returns its envelope.';
