-- Returns what a called function may have left in the session or transaction of its caller, and what would run its code
-- later as the caller: prepared statements, whose names drivers reuse; cursors that PostgreSQL evaluates at the commit;
-- types in the temporary schema, where PostgreSQL looks first; and changes of tables with triggers or exclusion
-- constraints that may be deferred, and with foreign keys that may be, on types of somebody's own, whose casts the
-- check calls. PostgreSQL 18 runs deferred triggers with the rights of the owner, but the engine would see the caller's
-- login. The mark differs if an item was replaced.
-- Internal.
create or replace function internal.session_items()
returns table (kind text, name text, mark text)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select 'a prepared statement', s.name, s.prepare_time::text from pg_prepared_statements s where s.from_sql
  union all
  select 'a cursor that outlives the transaction', c.name, c.creation_time::text from pg_cursors c where c.is_holdable
  union all
  select 'a temporary object', d.classid::regclass::text, d.objid::text from pg_depend d
  where pg_my_temp_schema() <> 0 and d.refclassid = 'pg_namespace'::regclass and d.refobjid = pg_my_temp_schema()
  union all
  select 'a change of a table with a deferrable trigger or constraint', t.tgrelid::text, made.changes::text
  from pg_trigger t left join pg_constraint c on c.oid = t.tgconstraint
  cross join lateral (
    select pg_stat_get_xact_tuples_inserted(t.tgrelid) + pg_stat_get_xact_tuples_updated(t.tgrelid)
      + pg_stat_get_xact_tuples_deleted(t.tgrelid) as changes) made
  where t.tgdeferrable and made.changes > 0
    and (not t.tgisinternal or c.contype = 'x' or c.contype = 'f' and exists (
      select from pg_attribute a where a.attrelid = c.conrelid and a.attnum = any (c.conkey) and a.atttypid >= 16384
        or a.attrelid = c.confrelid and a.attnum = any (c.confkey) and a.atttypid >= 16384))
$$;

comment on function internal.session_items() is
  'Returns what a called function may have left in the session or transaction of its caller.';
