-- Returns whether what exists once is in this database: true for the first shard, and for a database without shards.
-- Internal.
create or replace function queues.is_first_shard()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select not exists (select from queues.shard s where s.shard_number > 0) $$;

comment on function queues.is_first_shard() is
  'Returns whether what exists once is in this database: true for the first shard, and for a database without shards.';
