-- Returns the namespaces that have schedules which may fire. Reads one index entry per namespace, however many
-- schedules it has.
-- Internal.
create or replace function queues.namespaces_with_schedules()
returns setof text
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  with recursive owner(namespace) as (
    (select s.namespace from queues.schedule s where s.paused_at is null and s.orphaned_at is null
    order by s.namespace limit 1)
    union all
    select (
      select s.namespace from queues.schedule s
      where s.paused_at is null and s.orphaned_at is null and s.namespace > o.namespace
      order by s.namespace limit 1)
    from owner o where o.namespace is not null)
  select o.namespace from owner o where o.namespace is not null
$$;

comment on function queues.namespaces_with_schedules() is 'Returns the namespaces that have schedules which may fire.';
