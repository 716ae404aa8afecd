-- Enqueues a batch for holdfast_client: only executors that act with the rights of the worker. The right to execute
-- this function is the authority. PostgreSQL checks it against the current caller, also inside a business function that
-- runs with its owner's rights.
create or replace function queues.enqueue_for_client(tasks jsonb, payloads text[] default null)
returns table (task_id uuid, created boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if payloads is null then
    return query select i.task_id, i.created from queues.insert_tasks(tasks, for_process => false) i;
  else
    return query select i.task_id, i.created from queues.insert_payloads(tasks, payloads, for_process => false) i;
  end if;
end
$$;

comment on function queues.enqueue_for_client(jsonb, text[]) is
  'Enqueues a batch for holdfast_client: only executors that act with the rights of the worker.';
