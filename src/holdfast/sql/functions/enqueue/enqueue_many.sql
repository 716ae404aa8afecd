-- Enqueues a batch in one transaction, all or nothing, and returns the tasks in its order. The elements have the names
-- of enqueue's parameters. With payloads, which are JSON texts, the only element applies to each of them: that takes
-- less time than repeating it.
-- For holdfast_client and holdfast_process. Locks: keys in the order of (type, key). Security invoker, so that it sees
-- the actual caller and calls the function that this caller may execute.
create or replace function queues.enqueue_many(tasks jsonb, payloads text[] default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if has_function_privilege('queues.enqueue_for_process(jsonb, text[])'::regprocedure, 'execute') then
    return query select e.task_id, e.created from queues.enqueue_for_process(tasks, payloads) e;
  else
    return query select e.task_id, e.created from queues.enqueue_for_client(tasks, payloads) e;
  end if;
end
$$;

comment on function queues.enqueue_many(jsonb, text[]) is
  'Enqueues a batch in one transaction, all or nothing, and returns the tasks in its order.';
