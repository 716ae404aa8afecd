-- Enqueues the current generation of a run again as a new task that remembers the steps before the given one, and
-- returns its id.
-- The metadata of the new task names the original as fork_of. Without a step, it remembers all of them. Signals that
-- the original has not taken are not copied. It does not wait for the tasks that the original came after.
-- For holdfast_client (tasks of its namespace) and holdfast_operator. Locks: no existing rows.
create or replace function queues.fork(task_id uuid, before_step text default null, reason text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _task queues.task;
  _number integer;
  _generation integer;
  _fork uuid;
begin
  perform queues.check_task_owner(task_id);
  perform queues.check_memory(task_id);
  select * into _task from queues.task t where t.task_id = fork.task_id;
  _generation := coalesce(_task.generation, 1);
  if before_step is not null then
    select s.number into _number from queues.step s
    where s.task_id = fork.task_id and s.generation = _generation and s.name = before_step;
    if not found then
      raise exception using errcode = 'QF404', message = format('run %s has not recorded a step %s', task_id,
        to_json(before_step)),
        hint = 'Look for its name in queues.step_status.';
    end if;
  end if;
  select i.task_id into _fork from queues.insert_tasks(
    jsonb_build_array(jsonb_build_object('type', _task.type, 'payload', _task.payload, 'queue', _task.queue,
      'priority', _task.priority, 'max_attempts', _task.max_attempts, 'executor', _task.executor,
      'timeout', extract(epoch from _task.timeout)::text, 'lease', extract(epoch from _task.lease)::text,
      'deadline', extract(epoch from _task.deadline)::text,
      'concurrency_key', _task.concurrency_key,
      'metadata', coalesce(_task.metadata, '{}') || jsonb_build_object('fork_of', _task.task_id)
        || case when reason is null then '{}' else jsonb_build_object('fork_reason', left(reason, 2000)) end)),
    for_process => queues.has_role('operator'), namespace => _task.namespace) i;
  insert into queues.step (token, ended_at, task_id, number, took_ms, tries, kind, name, result, error, until,
    arguments)
  select 0, s.ended_at, _fork, s.number, s.took_ms, s.tries, s.kind, s.name, s.result, s.error, s.until,
      s.arguments
    from queues.step s
  where s.task_id = fork.task_id and s.generation = _generation and (_number is null or s.number < _number);
  insert into queues.child (parent_id, step, number, child_id, awaited, ends_with_parent, key)
  select _fork, c.step, c.number, c.child_id, c.awaited, false, c.key
  from queues.child c left join queues.step s on s.task_id = _fork and s.name = c.step
  -- Without a step: the tasks that it came after, whose results ctx.after returns.
  where c.parent_id = fork.task_id
    and (c.generation = _generation and s.name is not null or c.generation = 1 and c.step = '');
  return _fork;
end
$$;

comment on function queues.fork(uuid, text, text) is
  'Enqueues the spec of a run again as a new task that remembers the steps before the given one, and returns its id.';
