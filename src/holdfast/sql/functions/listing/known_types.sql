-- Returns the types with this prefix that any stored task has, with one index lookup for each.
-- Internal.
create or replace function queues.known_types(type_prefix text)
returns setof text
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  with recursive known(type) as (
    (select t.type from queues.task t where t.type >= type_prefix order by t.type limit 1)
    union all
    select (select t.type from queues.task t where t.type > k.type order by t.type limit 1)
    from known k where starts_with(k.type, type_prefix))
  select k.type from known k where starts_with(k.type, type_prefix)
$$;

comment on function queues.known_types(text) is
  'Returns the types with this prefix that any stored task has, with one index lookup for each.';
