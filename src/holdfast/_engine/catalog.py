"""Queries of the system catalog: processes, and the tables, functions and privileges of a schema."""

from typing import Any

import psycopg
from psycopg.rows import dict_row

from holdfast.errors import translate

CatalogRow = dict[str, Any]

# Registered processes, and what looks like one: x.shipping_supervisor belongs to x.shipping_task.
PROCESSES = """
  select coalesce(r.schema_name, n.nspname::text) as schema,
    coalesce(nullif(split_part(r.process, '.', 2), ''), r.process,
      regexp_replace(p.proname, '_supervisor$', '')) as stem,
    coalesce(r.root_table, regexp_replace(p.proname, '_supervisor$', '_task')) as root,
    coalesce(r.kind, 'attempts') as kind, r.process is not null as registered
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  full join queues.registered_process r on r.supervisor = n.nspname || '.' || p.proname
  where r.process is not null
    or p.proname ~ '._supervisor$' and p.pronargs = 1 and p.proargtypes[0] = 'pg_catalog.jsonb'::regtype
      and n.nspname !~ '^pg_'
  order by 1, 2"""

FUNCTIONS = """
  select p.proname::text as name, p.oid::regprocedure::text as signature, p.prosecdef as definer,
    p.prosrc as body,
    p.prokind = 'f' and not p.proretset and p.pronargs = 1 and p.proargtypes[0] = 'pg_catalog.jsonb'::regtype
      and p.prorettype = 'pg_catalog.jsonb'::regtype as takes_jsonb,
    exists (select from unnest(p.proconfig) c where c ~ '^search_path=pg_catalog, ?pg_temp$') as pinned,
    queues.has_role('process', pg_catalog.pg_get_userbyid(p.proowner)) as has_authority,
    (select r.rolsuper from pg_catalog.pg_roles r where r.oid = p.proowner) as superuser,
    p.proowner = n.nspowner as of_the_owner, pg_catalog.pg_get_userbyid(p.proowner)::text as owner,
    (select count(*) from pg_catalog.pg_proc o
     where o.pronamespace = p.pronamespace and o.proname = p.proname) as of_that_name
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname = %s and p.prokind in ('f', 'p') order by p.proname"""

TABLES = """
  select c.relname::text as name, c.relkind::text as kind, c.relpersistence = 'p' as logged,
    c.relowner = n.nspowner as of_the_owner, pg_catalog.pg_get_userbyid(c.relowner)::text as owner,
    coalesce(c.reloptions && array['security_barrier=true', 'security_barrier=on'], false) as barrier,
    exists (select from pg_catalog.pg_rewrite w where w.ev_class = c.oid) as has_rules
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %s and c.relkind in ('r', 'p', 'f', 'v', 'm') order by c.relname"""

# An append-only trigger fires before update, delete and truncate, per statement, for all columns, without a
# condition, and always (also in replication sessions).
TRIGGERS = """
  select c.relname::text as table, t.tgname::text as name, t.tgisinternal as internal,
    t.tgenabled = 'D' as disabled,
    t.tgenabled = 'A' and t.tgfoid = 'queues.refuse_change'::regproc and (t.tgtype & 123) = 58
      and t.tgqual is null and cardinality(t.tgattr::int2[]) = 0 as append_only
  from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = %s order by 1, 2"""

# Unique indexes that are enforced immediately, on columns that are not null.
INDEXES = """
  select i.table, i.condition, i.columns from (
    select c.relname::text as table, i.indnkeyatts,
      pg_catalog.pg_get_expr(i.indpred, i.indrelid) as condition,
      array(
        select a.attname::text from pg_catalog.unnest(i.indkey::int2[]) with ordinality k(number, place)
        join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number and a.attnotnull
        where k.place <= i.indnkeyatts order by 1) as columns
    from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and i.indisunique and i.indisvalid and i.indisready and i.indimmediate
      and i.indexprs is null) i
  where cardinality(i.columns) = i.indnkeyatts"""

# Every privilege on an object of the schema held by a role other than its owner.
PRIVILEGES = """
  select held.kind, held.name, held.signature, held.columns, lower(a.privilege_type) as privilege,
    case a.grantee when 0 then 'PUBLIC' else a.grantee::regrole::text end as grantee,
    a.is_grantable as grantable
  from (
    select n.oid as schema_oid, 'schema' as kind, n.nspname::text as name, n.nspname::text as signature,
      null::text as columns, n.nspacl as acl, n.nspowner as owner
    from pg_catalog.pg_namespace n
    union all
    select c.relnamespace, case when c.relkind = 'S' then 'sequence' when c.relkind in ('v', 'm') then 'view'
      else 'table' end, c.relname, c.oid::regclass::text, null, c.relacl, c.relowner
    from pg_catalog.pg_class c where c.relkind in ('r', 'p', 'f', 'v', 'm', 'S')
    union all
    select c.relnamespace, 'column', c.relname, c.oid::regclass::text, t.attname, t.attacl, c.relowner
    from pg_catalog.pg_attribute t join pg_catalog.pg_class c on c.oid = t.attrelid
    where t.attnum > 0 and not t.attisdropped
    union all
    select p.pronamespace, 'function', p.proname, p.oid::regprocedure::text, null,
      coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), p.proowner
    from pg_catalog.pg_proc p) held
  cross join lateral pg_catalog.aclexplode(held.acl) a
  where held.schema_oid = %s::regnamespace and a.grantee <> held.owner order by 1, 3, 5"""


def query_catalog(connection: psycopg.Connection[Any], query: str, *parameters: Any) -> list[CatalogRow]:
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), parameters).fetchall()
    except psycopg.Error as error:
        raise translate(error) from error
