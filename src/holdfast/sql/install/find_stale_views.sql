-- Checks whether "create or replace" can replace the views: none may have been removed, and each of the parts to be
-- replaced may only have gained columns at its end. To compare, each is created once under a temporary name. If not,
-- all views are dropped, and every part is replaced.
do $$
declare
  _parts constant text[] := pg_catalog.current_setting('holdfast.parts');
  _replaced constant text[] := pg_catalog.current_setting('holdfast.replaced');
  _wanted constant jsonb := (
    select pg_catalog.jsonb_agg(w)
    from pg_catalog.jsonb_array_elements(pg_catalog.current_setting('holdfast.views')::jsonb) w
    where w ->> 'part' = any (_parts));
  _view record;
  _stale boolean;
begin
  _stale := exists (
    select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any (pg_catalog.current_setting('holdfast.schemas')::text[]) and c.relkind = 'v'
      and not exists (
        select from pg_catalog.jsonb_array_elements(_wanted) w where w ->> 'name' = n.nspname || '.' || c.relname));

  for _view in
    select w ->> 'query' as query, pg_catalog.to_regclass(w ->> 'name') as oid
    from pg_catalog.jsonb_array_elements(_wanted) w
    where w ->> 'part' = any (_replaced) and pg_catalog.to_regclass(w ->> 'name') is not null
  loop
    exit when _stale;
    begin
      execute pg_catalog.format('create view queues.holdfast_probe as %s', _view.query);
      _stale := exists (
        select from pg_catalog.pg_attribute o
        where o.attrelid = _view.oid and not exists (
          select from pg_catalog.pg_attribute n
          where n.attrelid = pg_catalog.to_regclass('queues.holdfast_probe') and n.attnum = o.attnum
            and n.attname = o.attname and n.atttypid = o.atttypid and n.atttypmod = o.atttypmod
            and n.attcollation = o.attcollation));
      drop view queues.holdfast_probe;
    exception when undefined_table or undefined_column then
      -- It reads another view that does not exist yet or will change.
      _stale := true;
    end;
  end loop;

  perform pg_catalog.set_config('holdfast.drop_views', _stale::text, true);
  if _stale then
    perform pg_catalog.set_config('holdfast.replaced', _parts::text, true);
  end if;
end
$$;
