-- Enqueues the same spec again, as a new task with a fresh set of attempts that names the original in its metadata as replay_of. It belongs to the
-- namespace of the original. Returns its id. -- For holdfast_operator. Locks: none that exist already.
create or replace function queues.replay(task_id uuid, reason text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _task queues.task;
begin
  perform queues.own_task(task_id);
  select * into _task from queues.task t where t.task_id = replay.task_id;
  return queues.insert_task(_task.type, _task.payload, _task.queue, _task.priority, null, null, _task.max_attempts, _task.timeout,
    _task.lease, _task.executor, coalesce(_task.metadata, '{}') || jsonb_build_object('replay_of', _task.task_id)
      || case when reason is null then '{}' else jsonb_build_object('replay_reason', left(reason, 2000)) end,
    _task.concurrency_key, for_process => true, namespace => _task.namespace);
end
$$;

comment on function queues.replay(uuid, text) is
  'Enqueues the same spec again, as a new task that names the original in its metadata as replay_of.';
