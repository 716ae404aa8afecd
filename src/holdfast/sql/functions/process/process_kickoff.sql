-- Returns the owner of a kickoff that a process registers, or null without one. It returns a bigint, and its first
-- argument, a jsonb, is the only one without a default.
-- Internal.
create or replace function queues.process_kickoff(name text)
returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _arguments oidvector;
begin
  if name is null then
    return null;
  end if;
  select p.proargtypes into _arguments from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = split_part(name, '.', 1) and p.proname = split_part(name, '.', 2) and p.prorettype = 20
    and not p.proretset and p.pronargs - p.pronargdefaults = 1 and p.proargtypes[0] = 3802;
  if not found then
    raise exception using errcode = 'QF400',
      message = format('there is no function %s that a process may register as its kickoff', name),
      hint = 'It must return a bigint, and its first argument, a jsonb, must be the only one without a default.';
  end if;
  return queues.process_function(name, _arguments);
end
$$;

comment on function queues.process_kickoff(text) is
  'Returns the owner of a kickoff that a process registers, or null without one.';
