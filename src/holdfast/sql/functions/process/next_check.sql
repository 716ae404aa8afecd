-- Returns when a supervisor runs again: not before the time that it waits for, then at half of what remains. After the
-- expected time has passed, at half of the time since then. Never sooner than the minimum.
-- For holdfast_process.
create or replace function queues.next_check(
  not_before timestamptz, expected_by timestamptz, minimum interval default '5 seconds')
returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case when not_before > c.now then not_before
    else c.now + greatest(minimum, (expected_by - c.now) / 2, (c.now - expected_by) / 2) end
  from (select queues.clock() as now) c
$$;

comment on function queues.next_check(timestamptz, timestamptz, interval) is
  'Returns when a supervisor runs again: not before the time that it waits for, then at half of what remains.';
