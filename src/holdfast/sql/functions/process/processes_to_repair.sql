-- Returns the processes with instances to repair now, and the repair function of each: one row per process and
-- namespace, with the wait key of an instance. Looks at the first thousand instances of each process.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.processes_to_repair()
returns table (process text, repair text, wait_key uuid)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select distinct on (p.process, i.namespace) p.process, p.repair, i.wait_key
  from queues.process p
  cross join lateral queues.orphans(p.process, 1000) o(process_id)
  join queues.process_instance i on i.process = p.process and i.process_id = o.process_id
  order by p.process, i.namespace, i.process_id
$$;

comment on function queues.processes_to_repair() is
  'Returns the processes with instances to repair now, and the repair function of each.';
