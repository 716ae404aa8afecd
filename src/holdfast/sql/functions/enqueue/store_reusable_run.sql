-- Makes a task the reusable run of its spec, unless an unfinished run already is.
-- For holdfast_client and holdfast_process, for tasks of their namespace; called by enqueue_reusing. Locks: the row of
-- the spec.
create or replace function queues.store_reusable_run(task_id uuid)
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  update queues.reusable r set task_id = t.task_id
  from queues.task t
  where t.task_id = store_reusable_run.task_id and t.namespace = queues.namespace()
    and r.spec_hash = queues.spec_hash(t.type, t.executor, t.payload) and r.namespace = t.namespace
    and (select true from queues.ready w where w.task_id = r.task_id limit 1) is null
    and (select true from queues.lease l where l.task_id = r.task_id limit 1) is null
$$;

comment on function queues.store_reusable_run(uuid) is
  'Makes a task the reusable run of its spec, unless an unfinished run already is.';
