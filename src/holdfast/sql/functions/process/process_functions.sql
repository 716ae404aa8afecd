-- Returns the functions with which a process is read, started and cancelled, checked again: since it was registered,
-- its owner may have replaced one by a function that would run with the rights of the caller.
-- For holdfast_client and holdfast_reader. Locks: nothing.
create or replace function queues.process_functions(
  process text, out kind text, out history text, out cancel text, out kickoff text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  select p.kind, p.history, p.cancel, p.kickoff into kind, history, cancel, kickoff
  from queues.process p where p.process = process_functions.process;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no process %s', coalesce(process, 'null')),
      hint = 'holdfast process list shows the existing ones.';
  end if;
  perform queues.process_function(history, '20'), queues.process_function(cancel, '20 25'),
    queues.process_kickoff(kickoff);
end
$$;

comment on function queues.process_functions(text) is
  'Returns the functions with which a process is read, started and cancelled, checked again.';
