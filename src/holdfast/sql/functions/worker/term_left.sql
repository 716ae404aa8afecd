-- Returns how long until the current term ends, unless it is renewed; null without a leader.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.term_left()
returns interval
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select l.leader_until - queues.clock() from queues.leadership l where l.leader_until >= queues.clock()
$$;

comment on function queues.term_left() is
  'Returns how long until the current term ends, unless it is renewed; null without a leader.';
