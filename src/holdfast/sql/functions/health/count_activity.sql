-- How many tasks were enqueued, how many ended and how many attempts went wrong since the server's statistics began: twice, and there are
-- rates. Costs next to nothing. For holdfast_reader and holdfast_operator. Locks: none.
create or replace function queues.count_activity()
returns table (counted_at timestamptz, enqueued bigint, finished bigint, errors bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select queues.clock(), queues.count_inserted('queues.task'), queues.count_inserted('queues.outcome'), queues.count_inserted('queues.error')
$$;

comment on function queues.count_activity() is
  'How many tasks were enqueued, how many ended and how many attempts went wrong since the server''s statistics began.';
