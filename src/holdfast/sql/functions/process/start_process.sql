-- Starts an instance of a process in the caller's transaction with the kickoff that the process has registered, and
-- returns its id. The kickoff runs with the rights of its owner, for the namespace of the caller.
-- For holdfast_client. Locks: what the kickoff locks.
create or replace function queues.start_process(process text, input jsonb)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _process_id constant bigint := queues.call_process(process, 'kickoff', input);
begin
  if _process_id is null then
    raise exception using errcode = 'QF412',
      message = format('the kickoff of %s returned null, not the id of an instance', process);
  end if;
  return _process_id;
end
$$;

comment on function queues.start_process(text, jsonb) is
  'Starts an instance of a process in the caller''s transaction, and returns its id.';
