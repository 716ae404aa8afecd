-- Returns whether a namespace uses more lanes than allowed. The lanes of single concurrency keys do not count: claims
-- do not read them, and there are at most as many as keys with running tasks.
-- Internal.
create or replace function queues.hoards_lanes(namespace text)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_lanes');
begin
  if (select count(*) from (
    select from queues.lane l where l.namespace = hoards_lanes.namespace and coalesce(l.concurrency_key, '') = ''
    limit _most + 1) made) <= _most
  then
    return false;
  end if;
  -- Idle lanes are removed automatically.
  return (select count(*) from (
    select from queues.lane l where l.namespace = hoards_lanes.namespace and coalesce(l.concurrency_key, '') = ''
      and exists (select from queues.ready r where r.lane_id = l.lane_id)
    limit _most + 1) waiting) > _most;
end
$$;

comment on function queues.hoards_lanes(text) is 'Returns whether a namespace uses more lanes than allowed.';
