-- Every schema, function and view that a front may offer, as JSON: what a front needs to declare the same.
select 'schema' as kind, n.nspname::text as object, n.nspname::text as identity,
  pg_catalog.jsonb_build_object('grantees', coalesce((
    select pg_catalog.jsonb_agg(
        case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end order by 1)
    from pg_catalog.aclexplode(n.nspacl) a
    where a.grantee <> n.nspowner and a.privilege_type = 'USAGE'), '[]')) as described
from pg_catalog.pg_namespace n
where n.nspname in ('queues', 'internal', 'comms')
  and n.nspowner = (select q.nspowner from pg_catalog.pg_namespace q where q.nspname = 'queues')
union all
select 'function', n.nspname || '.' || p.proname, p.oid::pg_catalog.regprocedure::text,
  pg_catalog.jsonb_build_object(
    'arguments', pg_catalog.pg_get_function_arguments(p.oid),
    'result', pg_catalog.pg_get_function_result(p.oid),
    'returns_set', p.proretset,
    'writes', p.provolatile = 'v',
    'inputs', coalesce((
      select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(a.name, pg_catalog.format_type(a.type, null)) order by a.n)
      from unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargnames, p.proargmodes::text[])
        with ordinality a(type, name, mode, n)
      where coalesce(a.mode, 'i') = 'i'), '[]'),
    'columns', case
      when 't' = any (p.proargmodes) or 'o' = any (p.proargmodes) then (
        select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_array(a.name, pg_catalog.format_type(a.type, null)) order by a.n)
        from unnest(p.proallargtypes, p.proargnames, p.proargmodes::text[]) with ordinality a(type, name, mode, n)
        where a.mode in ('t', 'o'))
      else (
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(
          a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)) order by a.attnum)
        from pg_catalog.pg_type t join pg_catalog.pg_attribute a on a.attrelid = t.typrelid
        where t.oid = p.prorettype and a.attnum > 0 and not a.attisdropped) end,
    'composite', (
      select t.typname from pg_catalog.pg_type t join pg_catalog.pg_class c on c.oid = t.typrelid
      where t.oid = p.prorettype and c.relkind = 'c'),
    'grantees', coalesce((
      select pg_catalog.jsonb_agg(
        case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end order by 1)
      from pg_catalog.aclexplode(p.proacl) a where a.grantee <> p.proowner), '[]'))
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname in ('queues', 'internal', 'comms')
  and n.nspowner = (select q.nspowner from pg_catalog.pg_namespace q where q.nspname = 'queues')
union all
select 'view', n.nspname || '.' || c.relname, n.nspname || '.' || c.relname,
  pg_catalog.jsonb_build_object(
    'columns', (
      select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(
          a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)) order by a.attnum)
      from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0),
    'is_row_type', exists (
      select from pg_catalog.pg_proc p where p.prorettype = c.reltype and p.proacl is not null),
    'grantees', coalesce((
      select pg_catalog.jsonb_agg(
        case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end order by 1)
      from pg_catalog.aclexplode(c.relacl) a where a.grantee <> c.relowner), '[]'))
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('queues', 'internal', 'comms')
  and n.nspowner = (select q.nspowner from pg_catalog.pg_namespace q where q.nspname = 'queues') and c.relkind = 'v'
order by 1, 2;
