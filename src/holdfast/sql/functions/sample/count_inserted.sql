-- Returns how many rows were inserted into a table, including partitions, since the statistics began. Costs almost
-- nothing.
create or replace function queues.count_inserted(name regclass)
returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(sum(pg_stat_get_tuples_inserted(part.relid)), 0)::bigint
  from (select name::oid as relid union select tree.relid from pg_partition_tree(name) tree) part
$$;

comment on function queues.count_inserted(regclass) is
  'Returns how many rows were inserted into a table, including partitions, since the statistics began.';
