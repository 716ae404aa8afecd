-- Removes the lanes of concurrency keys that have no task waiting or running, so that claims need not look at them, and says how many.
-- The first lane of a type in a queue stays: by it, views and listings know that there were tasks of the type.
-- For holdfast_worker. Locks: lanes, never waiting for one.
create or replace function queues.tidy_lanes(max_lanes integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _idle integer[];
  _removed integer;
begin
  if max_lanes is null or max_lanes not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_lanes must be between 1 and 10000';
  elsif current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'QF412', message = 'lanes can be tidied only under read committed';
  end if;
  _idle := array(
    select l.lane_id from queues.lane l
    where l.concurrency_key is not null
      and exists (select from queues.lane first where first.queue = l.queue and first.type = l.type and first.lane_id < l.lane_id)
      and not exists (select from queues.ready r where r.lane_id = l.lane_id)
      and not exists (select from queues.lease e where e.lane_id = l.lane_id)
    limit max_lanes for update skip locked);
  -- Who found one of them before it was locked has put its task there by now: seen only by a statement that begins after the lock.
  delete from queues.lane l
  where l.lane_id = any (_idle)
    and not exists (select from queues.ready r where r.lane_id = l.lane_id)
    and not exists (select from queues.lease e where e.lane_id = l.lane_id);
  get diagnostics _removed = row_count;
  return _removed;
end
$$;

comment on function queues.tidy_lanes(integer) is
  'Removes the lanes of concurrency keys that have no task waiting or running, and says how many.';
