-- Deletes tasks and everything that belongs to them. Every table with rows per task must be listed here.
-- Internal: called by prune, which has locked their outcomes and deletions. Locks: keys, which no other transaction can
-- hold meanwhile.
create or replace function queues.forget_tasks(task_ids uuid[])
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  delete from queues.outcome o where o.task_id = any (task_ids);
  delete from queues.deletion d where d.task_id = any (task_ids);
  delete from queues.task_key k
  using (select t.type, t.idempotency_key, t.namespace, t.task_id from queues.task t
    where t.task_id = any (task_ids) and t.idempotency_key is not null offset 0) t
  where k.type = t.type and k.idempotency_key = t.idempotency_key and k.namespace = t.namespace and k.task_id = t.task_id;
  delete from queues.reusable r where r.task_id = any (task_ids);
  select set_config('holdfast.retention', 'on', true);
  delete from queues.error e where e.task_id = any (task_ids);
  delete from queues.act a where a.task_id = any (task_ids);
  delete from queues.task t where t.task_id = any (task_ids);
  select set_config('holdfast.retention', 'off', true);
$$;

comment on function queues.forget_tasks(uuid[]) is 'Deletes tasks and everything that belongs to them.';
