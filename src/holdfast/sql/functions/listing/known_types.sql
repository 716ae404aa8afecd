-- The types with this prefix that tasks were ever enqueued with, as far as retention keeps them: one look into an index for each.
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

comment on function queues.known_types(text) is 'The types with this prefix that tasks were ever enqueued with.';
