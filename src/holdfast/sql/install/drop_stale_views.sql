-- Drops all views, and the functions that return their rows, if one of them cannot be replaced; all of them are created
-- again. Never with cascade, so that a user's view built on ours stops the migration instead of disappearing.
do $$
declare
  _dropped text;
begin
  if not pg_catalog.current_setting('holdfast.drop_views')::boolean then
    return;
  end if;

  for _dropped in
    select distinct d.objid::pg_catalog.regprocedure
    from pg_catalog.pg_class c
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and d.refobjid = c.reltype
    join pg_catalog.pg_proc p on d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and p.oid = d.objid
    where c.relkind = 'v'
      and c.relnamespace = any (pg_catalog.current_setting('holdfast.schemas')::pg_catalog.regnamespace[])
      and p.pronamespace = any (pg_catalog.current_setting('holdfast.schemas')::pg_catalog.regnamespace[])
  loop
    execute 'drop routine ' || _dropped;
  end loop;

  select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', ') into _dropped
  from pg_catalog.pg_class c
  where c.relkind = 'v'
    and c.relnamespace = any (pg_catalog.current_setting('holdfast.schemas')::pg_catalog.regnamespace[]);
  if _dropped is not null then
    execute 'drop view ' || _dropped;
  end if;
end
$$;
