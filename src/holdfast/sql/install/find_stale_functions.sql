-- Finds functions that "create or replace" cannot replace: those that are no longer wanted here, and those of the parts
-- to be replaced whose parameters or result have changed. To compare, each header is declared once under a temporary
-- name. If a view has to be dropped for that, all of them are, and every part is replaced.
do $$
declare
  _parts constant text[] := pg_catalog.current_setting('holdfast.parts');
  _replaced constant text[] := pg_catalog.current_setting('holdfast.replaced');
  _wanted constant jsonb := (
    select pg_catalog.jsonb_agg(w)
    from pg_catalog.jsonb_array_elements(pg_catalog.current_setting('holdfast.functions')::jsonb) w
    where w ->> 'part' = any (_parts));
  _function record;
  _stale oid[];
begin
  _stale := array(
    select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
      and not exists (
        select from pg_catalog.jsonb_array_elements(_wanted) w where w ->> 'name' = n.nspname || '.' || p.proname));

  for _function in
    select w ->> 'header' as header, live.oid, live.defaults
    from pg_catalog.jsonb_array_elements(_wanted) w
    join (
      select p.oid, n.nspname || '.' || p.proname as name, p.pronargdefaults as defaults
      from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
      where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[])
    ) live on live.name = w ->> 'name'
    where w ->> 'part' = any (_replaced)
  loop
    begin
      execute pg_catalog.format('create function queues.holdfast_probe%s language plpgsql as ''''', _function.header);
      -- Looked up by name each time: a constant would keep the oid of the first one for the whole loop.
      if not exists (
        select from pg_catalog.pg_proc o, pg_catalog.pg_proc n
        where o.oid = _function.oid and n.oid = pg_catalog.to_regproc('queues.holdfast_probe')
          and o.prokind = n.prokind and o.proargtypes = n.proargtypes and o.provariadic = n.provariadic
          and o.prorettype = n.prorettype and o.proretset = n.proretset and o.pronargdefaults <= n.pronargdefaults
          and o.proallargtypes is not distinct from n.proallargtypes
          and o.proargmodes is not distinct from n.proargmodes
          and o.proargnames is not distinct from n.proargnames)
      then
        _stale := _stale || _function.oid;
      end if;
      drop function queues.holdfast_probe;
    exception when undefined_object or undefined_table then
      -- Its types do not exist yet, so this cannot be the same function.
      _stale := _stale || _function.oid;
    end;
  end loop;

  perform pg_catalog.set_config('holdfast.stale_functions', _stale::text, true);
  perform pg_catalog.set_config('holdfast.drop_views', exists (
    select from pg_catalog.pg_depend d
    where d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
      and d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.refobjid = any (_stale))::text, true);
  if pg_catalog.current_setting('holdfast.drop_views')::boolean then
    perform pg_catalog.set_config('holdfast.replaced', _parts::text, true);
  end if;
end
$$;
