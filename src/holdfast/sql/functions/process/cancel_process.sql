-- Cancels an instance of a process with the function that the process has registered, and returns the decision that
-- ended it: cancelled, or how it had already ended. The function runs with the rights of its owner, for the namespace
-- of the instance.
-- For holdfast_client (processes of its namespace) and holdfast_operator. Locks: what the function locks.
create or replace function queues.cancel_process(process text, process_id bigint, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespace constant text := (select i.namespace from queues.process_instance i
    where i.process = cancel_process.process and i.process_id = cancel_process.process_id);
begin
  if _namespace <> queues.namespace() and not queues.has_role('operator') then
    raise exception using errcode = 'QF404', message = format('there is no %s %s', process, process_id),
      hint = 'It may belong to another namespace.';
  end if;
  return queues.call_process(process, 'cancel', jsonb_build_array(process_id, reason), _namespace) #>> '{}';
end
$$;

comment on function queues.cancel_process(text, bigint, text) is
  'Cancels an instance of a process, and returns the decision that ended it.';
