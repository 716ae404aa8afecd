-- Records the size of all tables and the current transaction id, at most every half minute. Removes measurements older
-- than a week. Returns whether it recorded one.
-- For holdfast_worker. Locks: old measurements, without waiting.
create or replace function queues.measure()
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if exists (select from queues.measurement m where m.measured_at between _now - interval '30 seconds' and _now) then
    return false;
  end if;
  insert into queues.measurement (measured_at, transaction_id, bytes)
  values (_now, pg_current_xact_id(), queues.total_bytes()) on conflict do nothing;
  delete from queues.measurement m
  where m.measured_at in (
    select old.measured_at from queues.measurement old
    where old.measured_at < _now - interval '7 days' order by old.measured_at limit 100 for update skip locked);
  return true;
end
$$;

comment on function queues.measure() is
  'Records the size of all tables and the current transaction id, at most every half minute.';
