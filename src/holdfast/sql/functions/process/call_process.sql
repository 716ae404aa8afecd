-- Calls the function that a process has registered for this use: history, cancel or kickoff. Says so if there is none,
-- or if it was dropped or broke the rules since. It acts for the given namespace, or for that of the session.
-- Internal. Locks: what the function locks.
create or replace function queues.call_process(process text, use text, arguments jsonb, namespace text default null)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _name text;
begin
  select case use when 'history' then p.history when 'cancel' then p.cancel else p.kickoff end into _name
  from queues.process p where p.process = call_process.process;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no process %s', coalesce(process, 'null')),
      hint = 'holdfast process list shows the existing ones.';
  elsif _name is null then
    raise exception using errcode = 'QF412', message = format('%s has no kickoff that takes one document', process),
      hint = 'Pass kickoff to queues.register_process, or start it in your application.';
  end if;
  perform queues.process_function(_name, use, registered => true);
  return internal.call_checked(_name, use, arguments, namespace);
end
$$;

comment on function queues.call_process(text, text, jsonb, text) is
  'Calls the function that a process has registered for this use.';
