-- Calls a business function by name, with the caller's rights, and returns its envelope. Security invoker: the caller
-- can only call functions that were granted to it. Missing and forbidden functions give the same error, so that names
-- cannot be probed.
-- For holdfast_worker.
create or replace function internal.run_function(function_name text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _schema text;
  _name text;
  _count integer;
  _result jsonb;
begin
  if function_name ~ '^[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}$' then
    _schema := split_part(function_name, '.', 1);
    _name := split_part(function_name, '.', 2);
    select count(*) into _count
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = _schema and p.proname = _name
      and p.prokind = 'f' and not p.proretset and p.pronargs = 1 and p.provariadic = 0
      and p.proargtypes[0] = 'jsonb'::regtype and p.prorettype = 'jsonb'::regtype
      and p.prosecdef
      and exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog, ?pg_temp$')
      and not has_function_privilege('public', p.oid, 'execute')
      and has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute')
      -- A second function of the name would make it unclear which one was granted.
      and not exists (select from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname
        and o.oid <> p.oid);
  end if;
  if _count is distinct from 1 then
    raise exception using errcode = 'QF404',
      message = format('there is no function %s that may be run',
        coalesce(to_json(left(function_name, 130))::text, 'null')),
      hint = 'It must be schema.name(jsonb) returns jsonb, security definer, with search_path = pg_catalog, pg_temp, '
        'not executable by PUBLIC, and granted to the worker''s role.';
  end if;
  execute format('select %I.%I($1)', _schema, _name) into _result using payload;
  return _result;
end
$$;

comment on function internal.run_function(text, jsonb) is
  'Calls a business function by name, with the caller''s rights, and returns its envelope.';
