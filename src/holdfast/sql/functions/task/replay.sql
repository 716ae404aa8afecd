-- Enqueues the same spec again as a new task, whose metadata names the original as replay_of: a run that went on by
-- ctx.continue_as begins with its first generation. The new task has a full set of attempts and belongs to the
-- namespace of the original. Returns its id.
-- For holdfast_operator. Locks: no existing rows.
create or replace function queues.replay(task_id uuid, reason text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _task queues.task;
begin
  perform queues.check_task_owner(task_id);
  select * into _task from queues.task t where t.task_id = replay.task_id;
  return (
    select i.task_id from queues.insert_tasks(
      jsonb_build_array(jsonb_build_object('type', _task.type, 'payload',
        queues.first_payload(_task.task_id), 'queue', _task.queue,
        'priority', _task.priority, 'max_attempts', _task.max_attempts, 'executor', _task.executor,
        'timeout', extract(epoch from _task.timeout)::text, 'lease', extract(epoch from _task.lease)::text,
        'deadline', extract(epoch from _task.deadline)::text,
        'concurrency_key', _task.concurrency_key,
        'metadata', coalesce(_task.metadata, '{}') || jsonb_build_object('replay_of', _task.task_id)
          || case when reason is null then '{}' else jsonb_build_object('replay_reason', left(reason, 2000)) end)),
      for_process => true, namespace => _task.namespace) i);
end
$$;

comment on function queues.replay(uuid, text) is
  'Enqueues the same spec again as a new task, whose metadata names the original as replay_of.';
