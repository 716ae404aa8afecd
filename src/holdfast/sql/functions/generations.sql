-- Runs that go on by ctx.continue_as, and forks. A generation ends, and the next one begins in the same task, with
-- another payload and no memory. A fork is a new task that remembers the first steps of another one.
-- Invariant: a run stays the same task, with its id, keys, signals, deadline and everything that waits for it. Steps,
-- children and errors carry the number of their generation, so the next one does not see them. queues.generation keeps
-- the payload of those that have ended. This is the only place where a row of queues.task is updated.
-- Lock order: leases first, by finish, which calls begin_generations; then the tasks. Only retention locks rows of
-- queues.task, too, and only of tasks that do not run. A fork locks nothing that exists.
-- At the same time: no other session can change the run, since its lease has just been removed in this transaction and
-- its ready row is not visible yet. A fork that reads a run while it goes on copies the steps of the generation that it
-- has read first. Signals belong to no generation, so one that comes during the change is not lost.

-- Enqueues the current generation of a run again as a new task that remembers the steps before the given one, and
-- returns its id. The metadata of the new task names the original as fork_of. Without a step, it remembers all of them.
-- Signals that the original has not taken are not copied. It does not wait for the tasks that the original came after.
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

-- Returns the payload with which a task was enqueued: that of its first generation.
-- Internal: called by reserve_keys and replay. Locks: none.
create or replace function queues.first_payload(task_id uuid)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when t.generation is null then t.payload else (
    select g.payload from queues.generation g where g.task_id = t.task_id and g.number = 1) end
  from queues.task t where t.task_id = first_payload.task_id
$$;

-- Begins the next generation of runs that go on by ctx.continue_as, with other arguments and no memory. They stay the
-- same tasks: ids, keys, signals, deadlines and all who wait for them stay as they are.
-- Internal: called by finish, which has ended their leases, recorded their last steps and made them ready.
create or replace function queues.begin_generations(continued jsonb, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ids constant uuid[] := array(select c.task_id from jsonb_to_recordset(continued) as c(task_id uuid));
begin
  insert into queues.generation (task_id, ended_at, number, payload)
  select t.task_id, begin_generations.now, coalesce(t.generation, 1), t.payload
  from queues.task t where t.task_id = any (_ids);
  perform set_config('holdfast.continues', 'on', true);
  update queues.task t set payload = c.payload, generation = coalesce(t.generation, 1) + 1
  from jsonb_to_recordset(continued) as c(task_id uuid, payload jsonb)
  where t.task_id = any (_ids) and t.task_id = c.task_id;
  perform set_config('holdfast.continues', 'off', true);
  delete from queues.wait w where w.task_id = any (_ids);
  perform queues.wake_for(c.task_id) from unnest(_ids) c(task_id);
end
$$;

-- Returns the number of the current generation of a run; null if there is no such task.
-- Internal. Locks: none.
create or replace function queues.current_generation(task_id uuid)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select coalesce(t.generation, 1) from queues.task t where t.task_id = current_generation.task_id $$;

-- Returns why a run cannot go on with these arguments, or null.
-- Internal: called by finish.
create or replace function queues.why_not_continue(payload jsonb)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'the arguments of the next run: the payload ' || case when jsonb_typeof(payload) is distinct from 'object'
    then 'is not an object'
    else queues.document_problem(payload, (select s.value from queues.setting s where s.name = 'max_payload_bytes')) end
$$;
