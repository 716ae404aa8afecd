-- Records which shard this database is, and returns whether that is new. Numbers never change, because ids carry them,
-- nor does the number of shards that keys are spread over: a shard that is added later gets only tasks without a key.
-- Only the first shard may hold tasks before it is numbered, because their ids carry the number 0.
-- For holdfast_owner: holdfast migrate calls it, and then replaces new_task_id. Locks: the row of this shard.
create or replace function queues.number_shard(name text, number integer, key_shards integer)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _known queues.shard;
begin
  select * into _known from queues.shard for update;
  if found then
    if (_known.shard_name, _known.shard_number, _known.key_shards)
      is distinct from (name, number::smallint, key_shards::smallint)
    then
      raise exception using message = format(
        'This database is shard %s, number %s, with keys on %s shards, and the settings call it %s, number %s, with '
        'keys on %s. The order of the shards never changes, because ids carry their numbers. Put the settings back.',
        _known.shard_name, _known.shard_number, _known.key_shards, name, number, key_shards);
    end if;
    return false;
  end if;
  if number > 0 and exists (select from queues.task) then
    raise exception using message = format(
      'The database of shard %s, number %s, already holds tasks, and their ids belong to the first shard. '
      'Name this database first, or give an empty one.', name, number);
  end if;
  insert into queues.shard (shard_number, shard_name, key_shards, numbered_at)
  values (number, name, key_shards, queues.clock());
  return true;
end
$$;

comment on function queues.number_shard(text, integer, integer) is
  'Records which shard this database is, and returns whether that is new.';
