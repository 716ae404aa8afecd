-- Returns the functions with which a process is read, started and cancelled, checked again: since it was registered,
-- its owner may have replaced one by a function that would run with the rights of the caller. `use` is history, cancel
-- or kickoff: only this function is checked and returned, and another that is missing does not matter.
-- For holdfast_client and holdfast_reader. Locks: nothing.
create or replace function queues.process_functions(
  process text, use text default null, out kind text, out history text, out cancel text, out kickoff text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if use not in ('history', 'cancel', 'kickoff') then
    raise exception using errcode = 'QF400', message = 'use must be history, cancel or kickoff';
  end if;
  select p.kind, case when coalesce(use, 'history') = 'history' then p.history end,
    case when coalesce(use, 'cancel') = 'cancel' then p.cancel end,
    case when coalesce(use, 'kickoff') = 'kickoff' then p.kickoff end
  into kind, history, cancel, kickoff
  from queues.process p where p.process = process_functions.process;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no process %s', coalesce(process, 'null')),
      hint = 'holdfast process list shows the existing ones.';
  end if;
  perform queues.process_function(f.name, f.use, registered => true)
  from (values (history, 'history'), (cancel, 'cancel'), (kickoff, 'kickoff')) f(name, use)
  where f.name is not null;
end
$$;

comment on function queues.process_functions(text, text) is
  'Returns the functions with which a process is read, started and cancelled, checked again.';
