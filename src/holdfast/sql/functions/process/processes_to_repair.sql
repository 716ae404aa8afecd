-- The processes that have instances to repair now, and the function of each that does so. For holdfast_worker. Locks: nothing.
create or replace function queues.processes_to_repair()
returns table (process text, repair text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select p.process, p.repair from queues.process p
  where exists (select from queues.orphans(p.process, 1)) order by p.process
$$;

comment on function queues.processes_to_repair() is 'The processes that have instances to repair now, and the function of each that does so.';
