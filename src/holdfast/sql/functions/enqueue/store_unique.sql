-- Stores that a task that was just enqueued holds its key of unique tasks.
-- Internal: called by insert_arranged, which has locked the key. Locks: the row of the key.
create or replace function queues.store_unique(task_id uuid, key text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  update queues.unique_task u set task_id = t.task_id
  from queues.task t
  where t.task_id = store_unique.task_id and u.type = t.type and u.key = store_unique.key and u.namespace = t.namespace;
end
$$;

comment on function queues.store_unique(uuid, text) is
  'Stores that a task that was just enqueued holds its key of unique tasks.';
