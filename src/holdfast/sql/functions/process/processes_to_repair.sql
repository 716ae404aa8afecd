-- Returns the processes with instances to repair now, and the repair function of each.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.processes_to_repair()
returns table (process text, repair text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select p.process, p.repair from queues.process p
  where exists (select from queues.orphans(p.process, 1)) order by p.process
$$;

comment on function queues.processes_to_repair() is
  'Returns the processes with instances to repair now, and the repair function of each.';
