-- How long until the present term ends, unless it is prolonged; null if nobody leads. For holdfast_worker. Locks: nothing.
create or replace function queues.term_left()
returns interval
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select l.leader_until - queues.clock() from queues.leadership l where l.leader_until >= queues.clock()
$$;

comment on function queues.term_left() is
  'How long until the present term ends, unless it is prolonged; null if nobody leads.';
