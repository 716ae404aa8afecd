-- Returns the owner of a function if a process may register it for this use (supervisor, repair, cancel, history or
-- kickoff), otherwise null. It is called with the rights of others, so none of its code may run with them: it is
-- security definer with a pinned path, the only one of its name, and not executable by PUBLIC. PostgreSQL evaluates
-- defaults with the rights of the caller, so those of a kickoff are constants. A history has the columns that are
-- read, because PostgreSQL would call a function for one that is missing.
-- Internal.
create or replace function queues.find_process_function(name text, use text)
returns oid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.proowner
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where find_process_function.name ~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$'
    and n.nspname = split_part(find_process_function.name, '.', 1)
    and p.proname = split_part(find_process_function.name, '.', 2) and p.prokind = 'f'
    and case find_process_function.use
      when 'kickoff' then p.proargtypes[0] = 3802 and p.pronargs - p.pronargdefaults = 1
        and p.prorettype = 20 and not p.proretset
        and (p.proargdefaults is null or p.proargdefaults::text !~ '\{(?!CONST :)')
      when 'history' then p.proargtypes = '20' and p.prorettype = 2249 and p.proretset
        and p.proallargtypes = '{20,1184,25,25,2950}' and p.proargnames[2:] = '{at,what,reason,task_id}'
      when 'cancel' then p.proargtypes = '20 25' and p.prorettype = 25 and not p.proretset
      else p.proargtypes = '3802' end
    and p.prosecdef and exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog, ?pg_temp$')
    and not has_function_privilege('public', p.oid, 'execute')
    and not exists (select from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname
      and o.oid <> p.oid)
$$;

comment on function queues.find_process_function(text, text) is
  'Returns the owner of a function if a process may register it for this use, otherwise null.';
