-- Returns a function if a process may register it for this use (supervisor, repair, cancel, history or kickoff), or a
-- worker may call it for a task (use: task), otherwise nulls: its owner, the expression that calls it with $1, and its
-- version, which differs once its owner has replaced it. It is security definer with a pinned path, the only one of its
-- name, not executable by PUBLIC, and granted to holdfast_caller, as which it is called. The expression names all
-- arguments of a kickoff, so that no other function of that name can take its place. In a database of a single login,
-- that login calls the function, so the function and its schema have to be its own.
-- Internal.
create or replace function queues.find_process_function(
  name text, use text, out owner oid, out expression text, out version text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.proowner, format('%I.%I(%s)', n.nspname, p.proname, case find_process_function.use
      when 'history' then '($1 ->> 0)::bigint'
      when 'cancel' then '($1 ->> 0)::bigint, $1 ->> 1'
      when 'kickoff' then (
        select string_agg(case i when 1 then '$1' else pg_get_function_arg_default(p.oid, i) end, ', ' order by i)
        from generate_series(1, p.pronargs) i)
      else '$1' end),
    concat_ws(' ', p.oid, p.xmin, n.xmin)
  from pg_proc p
  join pg_namespace n on n.oid = p.pronamespace
  join pg_proc caller on caller.oid = 'internal.call_function(text, jsonb)'::regprocedure
  where find_process_function.name ~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$'
    and n.nspname = split_part(find_process_function.name, '.', 1)
    and p.proname = split_part(find_process_function.name, '.', 2) and p.prokind = 'f' and p.provariadic = 0
    and case find_process_function.use
      when 'kickoff' then p.proargtypes[0] = 3802 and p.pronargs - p.pronargdefaults = 1
        and p.prorettype = 20 and not p.proretset and p.proallargtypes is null
        and not exists (select from unnest(p.proargtypes) t(type) where t.type >= 16384)
        and (p.proargdefaults is null or p.proargdefaults::text !~ '\{(?!CONST :)')
      when 'history' then p.proargtypes = '20' and p.prorettype = 2249 and p.proretset
        and p.proallargtypes = '{20,1184,25,25,2950}' and p.proargnames[2:] = '{at,what,reason,task_id}'
      when 'cancel' then p.proargtypes = '20 25' and p.prorettype = 25 and not p.proretset
      else p.proargtypes = '3802' and p.prorettype = 3802 and not p.proretset end
    and p.prosecdef and exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog, ?pg_temp$')
    and not has_function_privilege('public', p.oid, 'execute')
    and case when pg_get_userbyid(caller.proowner) = 'holdfast_caller'
      then has_schema_privilege(caller.proowner, n.oid, 'usage')
        and has_function_privilege(caller.proowner, p.oid, 'execute')
      else p.proowner = caller.proowner and n.nspowner = caller.proowner end
    and not exists (select from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname
      and o.oid <> p.oid)
$$;

comment on function queues.find_process_function(text, text) is
  'Returns a function if a process may register it for this use, otherwise nulls.';
