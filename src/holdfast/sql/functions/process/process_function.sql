-- Returns the owner of a function that a process registers; refuses a function that breaks the rules. It must exist, be
-- security definer with a pinned path, and not be executable by PUBLIC. There must be exactly one function of that
-- name, with these arguments.
-- Internal.
create or replace function queues.process_function(name text, arguments oidvector)
returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _found oid;
begin
  select p.proowner into _found
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = split_part(name, '.', 1) and p.proname = split_part(name, '.', 2) and p.prokind = 'f'
    and p.proargtypes = arguments
    and p.prosecdef and exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog, ?pg_temp$')
    and not has_function_privilege('public', p.oid, 'execute')
    and not exists (select from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname
      and o.oid <> p.oid);
  if _found is null then
    raise exception using errcode = 'QF400', message = format('there is no function %s(%s) that a process may register',
        coalesce(name, 'null'), (select string_agg(format_type(a, null), ', ') from unnest(arguments) a)),
      hint = 'It must be the only function of its name, security definer, with search_path = pg_catalog, pg_temp, and '
        'not executable by PUBLIC.';
  end if;
  return _found;
end
$$;

comment on function queues.process_function(text, oidvector) is
  'Returns the owner of a function that a process registers; refuses a function that breaks the rules.';
