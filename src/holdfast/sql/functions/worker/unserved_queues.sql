-- Returns the queues whose due tasks no live worker serves, with the message of queues.health for each.
-- For holdfast_worker. Locks: none.
create or replace function queues.unserved_queues()
returns table (queue text, seconds double precision, message text, advice text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select h.subject, h.value, h.message, h.advice from queues.health_of_queues(queues.clock()) h
  where h.check_name = 'unserved' order by h.value desc, h.subject
$$;

comment on function queues.unserved_queues() is
  'Returns the queues whose due tasks no live worker serves, with the message of queues.health for each.';
