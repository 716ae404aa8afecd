-- Returns instances of a process without a supervisor that are due for repair. The first repair is due at once; the
-- delay doubles after each repair that did not help, up to an hour. For the repair function of the process, which
-- repairs those of the namespace for which it is called.
-- For holdfast_process. Locks: nothing.
create or replace function queues.orphans(process text, max_processes integer default 100)
returns setof bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select i.process_id from queues.process_instance i
  where i.process = orphans.process and i.trouble = 'orphaned'
    and i.namespace = coalesce((select c.namespace from internal.current_call() c), i.namespace)
    and (i.repaired_at is null
      or i.repaired_at + interval '15 seconds' * least(240, 2 ^ least(i.repairs, 8)) <= queues.clock())
  order by i.process_id limit least(max_processes, 1000)
$$;

comment on function queues.orphans(text, integer) is
  'Returns instances of a process without a supervisor that are due for repair.';
