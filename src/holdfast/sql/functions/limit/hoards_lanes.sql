-- Returns whether a namespace uses more lanes, with or without concurrency keys, than allowed.
-- Internal.
create or replace function queues.hoards_lanes(namespace text, keyed boolean)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _most constant bigint := (
    select s.value from queues.setting s where s.name = case when keyed then 'max_keyed_lanes' else 'max_lanes' end);
begin
  if (select count(*) from (
    select from queues.lane l where l.namespace = hoards_lanes.namespace and (l.concurrency_key is null) = (not hoards_lanes.keyed)
    limit _most + 1) made) <= _most
  then
    return false;
  end if;
  -- Idle lanes are removed automatically.
  return (select count(*) from (
    select from queues.lane l where l.namespace = hoards_lanes.namespace and (l.concurrency_key is null) = (not hoards_lanes.keyed)
      and exists (select from queues.ready r where r.lane_id = l.lane_id)
    limit _most + 1) waiting) > _most;
end
$$;

comment on function queues.hoards_lanes(text, boolean) is
  'Returns whether a namespace uses more lanes, with or without concurrency keys, than allowed.';
