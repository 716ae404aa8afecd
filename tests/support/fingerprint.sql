-- Every object of the engine's schemas with all its properties, as (name, facts). No grants and the default grants are
-- treated as equal, although the catalog distinguishes them.
with
our_schema as (
  select n.* from pg_catalog.pg_namespace n where n.nspname in ('queues', 'internal', 'comms')
),
our_relation as (
  select c.*, s.nspname, pg_catalog.format('%I.%I', s.nspname, c.relname) as name
  from pg_catalog.pg_class c join our_schema s on s.oid = c.relnamespace
)
select 'schema ' || s.nspname, pg_catalog.jsonb_build_object(
  'owner', s.nspowner::pg_catalog.regrole::text,
  'grants', (
    select pg_catalog.jsonb_agg(a::text order by a::text)
    from pg_catalog.unnest(coalesce(s.nspacl, pg_catalog.acldefault('n', s.nspowner))) a),
  'comment', pg_catalog.obj_description(s.oid, 'pg_namespace'))
from our_schema s

union all
select case c.relkind when 'r' then 'table ' when 'v' then 'view ' when 'i' then 'index ' when 'S' then 'sequence '
    when 'c' then 'type ' else c.relkind::text || ' ' end || c.name,
  pg_catalog.jsonb_build_object(
    'owner', c.relowner::pg_catalog.regrole::text,
    'grants', (
      select pg_catalog.jsonb_agg(a::text order by a::text)
      from pg_catalog.unnest(coalesce(
        c.relacl, pg_catalog.acldefault(case c.relkind when 'S' then 's'::"char" else 'r' end, c.relowner))) a),
    'comment', pg_catalog.obj_description(c.oid, 'pg_class'),
    'options', (select pg_catalog.jsonb_agg(o order by o) from pg_catalog.unnest(c.reloptions) o),
    'persistence', c.relpersistence,
    'row security', c.relrowsecurity,
    'definition', case c.relkind
      when 'v' then pg_catalog.pg_get_viewdef(c.oid)
      when 'i' then pg_catalog.pg_get_indexdef(c.oid)
      when 'S' then (select (pg_catalog.to_jsonb(q) - 'seqrelid')::text from pg_catalog.pg_sequence q where q.seqrelid = c.oid) end)
from our_relation c

union all
select pg_catalog.format('column %s.%I', c.name, a.attname), pg_catalog.jsonb_build_object(
  'position', (
    select pg_catalog.count(*) from pg_catalog.pg_attribute b
    where b.attrelid = a.attrelid and b.attnum between 1 and a.attnum and not b.attisdropped),
  'type', pg_catalog.format_type(a.atttypid, a.atttypmod),
  'collation', (select l.collname from pg_catalog.pg_collation l where l.oid = a.attcollation),
  'not null', a.attnotnull,
  'identity', a.attidentity,
  'generated', a.attgenerated,
  'storage', a.attstorage,
  'statistics', a.attstattarget,
  'default', (
    select pg_catalog.pg_get_expr(d.adbin, d.adrelid) from pg_catalog.pg_attrdef d
    where d.adrelid = a.attrelid and d.adnum = a.attnum),
  'grants', (select pg_catalog.jsonb_agg(g::text order by g::text) from pg_catalog.unnest(a.attacl) g),
  'comment', pg_catalog.col_description(a.attrelid, a.attnum))
from our_relation c join pg_catalog.pg_attribute a on a.attrelid = c.oid
where c.relkind in ('r', 'v', 'c') and a.attnum > 0 and not a.attisdropped

union all
select pg_catalog.format('constraint %I on %s', k.conname, c.name), pg_catalog.jsonb_build_object(
  'definition', pg_catalog.pg_get_constraintdef(k.oid), 'comment', pg_catalog.obj_description(k.oid, 'pg_constraint'))
from our_relation c join pg_catalog.pg_constraint k on k.conrelid = c.oid

union all
select pg_catalog.format('trigger %I on %s', t.tgname, c.name), pg_catalog.jsonb_build_object(
  'definition', pg_catalog.pg_get_triggerdef(t.oid), 'enabled', t.tgenabled)
from our_relation c join pg_catalog.pg_trigger t on t.tgrelid = c.oid
where not t.tgisinternal

union all
select 'function ' || p.oid::pg_catalog.regprocedure, pg_catalog.jsonb_build_object(
  'owner', p.proowner::pg_catalog.regrole::text,
  'grants', (
    select pg_catalog.jsonb_agg(a::text order by a::text)
    from pg_catalog.unnest(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a),
  'comment', pg_catalog.obj_description(p.oid, 'pg_proc'),
  'definition', pg_catalog.pg_get_functiondef(p.oid))
from pg_catalog.pg_proc p join our_schema s on s.oid = p.pronamespace

union all
select 'standalone type ' || t.oid::pg_catalog.regtype, pg_catalog.jsonb_build_object(
  'owner', t.typowner::pg_catalog.regrole::text,
  'kind', t.typtype,
  'grants', (
    select pg_catalog.jsonb_agg(a::text order by a::text)
    from pg_catalog.unnest(coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner))) a),
  'labels', (
    select pg_catalog.jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_catalog.pg_enum e where e.enumtypid = t.oid),
  'comment', pg_catalog.obj_description(t.oid, 'pg_type'))
from pg_catalog.pg_type t join our_schema s on s.oid = t.typnamespace
where t.typelem = 0

union all
select 'default for ' || d.defaclobjtype::text, pg_catalog.jsonb_build_object(
  'schema', (select n.nspname from pg_catalog.pg_namespace n where n.oid = d.defaclnamespace),
  'grants', (select pg_catalog.jsonb_agg(a::text order by a::text) from pg_catalog.unnest(d.defaclacl) a))
from pg_catalog.pg_default_acl d
where d.defaclrole = pg_catalog.to_regrole('holdfast_owner')

union all
select pg_catalog.format('member %s of %s', m.member::pg_catalog.regrole, m.roleid::pg_catalog.regrole), '{}'
from pg_catalog.pg_auth_members m
where m.member::pg_catalog.regrole::text in ('holdfast_process', 'holdfast_operator');
