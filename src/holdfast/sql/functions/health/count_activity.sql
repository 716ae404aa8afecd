-- Returns how many tasks were enqueued and ended, and how many attempts failed, since the statistics began. Two calls
-- give rates. Costs almost nothing.
-- For holdfast_reader and holdfast_operator. Locks: none.
create or replace function queues.count_activity()
returns table (counted_at timestamptz, enqueued bigint, finished bigint, errors bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select queues.clock(), queues.count_inserted('queues.task'), queues.count_inserted('queues.outcome'),
    queues.count_inserted('queues.error')
$$;

comment on function queues.count_activity() is
  'Returns how many tasks were enqueued and ended, and how many attempts failed, since the statistics began.';
