-- Instead of grants.sql: revokes everything from everybody but the single login that owns it, including PUBLIC and
-- those to whom its default privileges give rights on all that it creates.
do $$
declare
  _granted record;
begin
  for _granted in
    select distinct held.kind, held.name,
      case held.grantee when 0 then 'public' else held.grantee::pg_catalog.regrole::text end as grantee
    from (
      select 'schema' as kind, n.oid::pg_catalog.regnamespace::text as name, n.nspowner as owner, a.grantee
      from pg_catalog.pg_namespace n cross join lateral pg_catalog.aclexplode(n.nspacl) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      union all
      select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::pg_catalog.regclass::text, c.relowner,
        a.grantee
      from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      cross join lateral (
        select e.grantee from pg_catalog.aclexplode(c.relacl) e
        union all
        select e.grantee from pg_catalog.pg_attribute t cross join lateral pg_catalog.aclexplode(t.attacl) e
        where t.attrelid = c.oid) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      union all
      select 'routine', p.oid::pg_catalog.regprocedure::text, p.proowner, a.grantee
      from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
      cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      union all
      select 'type', t.oid::pg_catalog.regtype::text, t.typowner, a.grantee
      from pg_catalog.pg_type t join pg_catalog.pg_namespace n on n.oid = t.typnamespace
      left join pg_catalog.pg_class c on c.oid = t.typrelid
      cross join lateral pg_catalog.aclexplode(coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner))) a
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
        and t.typcategory <> 'A' and t.typtype <> 'm' and coalesce(c.relkind, 'c') = 'c'
    ) held
    where held.grantee <> held.owner
  loop
    execute pg_catalog.format('revoke all on %s %s from %s cascade', _granted.kind, _granted.name, _granted.grantee);
  end loop;
end
$$;
