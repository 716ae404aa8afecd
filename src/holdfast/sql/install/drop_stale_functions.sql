do $$
declare
  _dropped text;
begin
  for _dropped in
    select p.oid::pg_catalog.regprocedure from pg_catalog.pg_proc p
    where p.oid = any (pg_catalog.current_setting('holdfast.stale_functions')::oid[])
  loop
    execute 'drop routine ' || _dropped;
  end loop;
end
$$;
