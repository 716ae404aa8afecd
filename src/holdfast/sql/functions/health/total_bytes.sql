-- Returns the total size of all tables and indexes of the engine.
create or replace function queues.total_bytes()
returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
  from pg_class c where c.relnamespace = 'queues'::regnamespace and c.relkind in ('r', 'm')
$$;

comment on function queues.total_bytes() is 'Returns the total size of all tables and indexes of the engine.';
