-- Business processes: who owns one, which functions it has, which task runs its supervisor next, and how a missing
-- supervisor is found.
-- Invariant: an instance that has not ended names the task of its supervisor. If that task is gone, the instance is
-- marked as orphaned, and the repair function of the process enqueues another one. The functions of a process and its
-- root table have one owner, and only that role or its members can register it. An instance that has ended does not
-- begin again.
-- Lock order: the root row of the process, which its own functions lock; the row of queues.process_instance; waiters. A
-- nudge locks the ready row of the supervisor. Searches for orphans skip locked rows.
-- At the same time: a repair locks the root and then asks is_supervised again, so two repairs do not enqueue two
-- supervisors. A supervisor that runs between two looks of nudge_process has another task: it looks again. The end of
-- an awaited task nudges the supervisor unless its row is locked; then find_orphans does, in its turn.

-- Cancels an instance of a process with the function that the process has registered, and returns the decision that
-- ended it: cancelled, or how it had already ended. The function runs with the rights of its owner, for the namespace
-- of the instance.
-- For holdfast_client (processes of its namespace) and holdfast_operator. Locks: what the function locks.
create or replace function queues.cancel_process(process text, process_id bigint, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespace constant text := (select i.namespace from queues.process_instance i
    where i.process = cancel_process.process and i.process_id = cancel_process.process_id);
begin
  if _namespace <> queues.namespace() and not queues.has_role('operator') then
    raise exception using errcode = 'QF404', message = format('there is no %s %s', process, process_id),
      hint = 'It may belong to another namespace.';
  end if;
  return queues.call_process(process, 'cancel', jsonb_build_array(process_id, reason), _namespace) #>> '{}';
end
$$;

-- Calls the function that a process has registered for this use: history, cancel or kickoff. Says so if there is none,
-- or if it was dropped or broke the rules since. It acts for the given namespace, or for that of the session.
-- Internal. Locks: what the function locks.
create or replace function queues.call_process(process text, use text, arguments jsonb, namespace text default null)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _name text;
begin
  select case use when 'history' then p.history when 'cancel' then p.cancel else p.kickoff end into _name
  from queues.process p where p.process = call_process.process;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no process %s', coalesce(process, 'null')),
      hint = 'holdfast process list shows the existing ones.';
  elsif _name is null then
    raise exception using errcode = 'QF412', message = format('%s has no kickoff that takes one document', process),
      hint = 'Pass kickoff to queues.register_process, or start it in your application.';
  end if;
  perform queues.process_function(_name, use, registered => true);
  return internal.call_checked(_name, use, arguments, namespace);
end
$$;

-- Returns the owner of a function that a process registers for this use; refuses a function that breaks the rules. With
-- `registered` it was registered before, and has been dropped or changed since, or was registered by an older release.
create or replace function queues.process_function(name text, use text, registered boolean default false)
returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _found constant oid := (queues.find_process_function(name, use)).owner;
  _called constant text := format('%s(%s)', coalesce(name, 'null'),
    case use when 'history' then 'bigint' when 'cancel' then 'bigint, text' else 'jsonb' end);
begin
  if _found is null then
    raise exception using errcode = case when registered then 'QF412' else 'QF400' end,
      message = case when registered
        then format('the %s %s was dropped or changed since it was registered, or is not granted to holdfast_caller',
          use, _called)
        else format('there is no function %s that a process may register as its %s', _called, use) end,
      hint = 'It must be the only function of its name, security definer, with search_path = pg_catalog, pg_temp, and '
        'not executable by PUBLIC.' || case use
        when 'kickoff' then ' It must return a bigint. Its first argument must be a jsonb, and every other one must '
          'be of a built-in type and have a constant of its own type as default, such as null or ''3''.'
        when 'history' then ' It must return table (at timestamptz, what text, reason text, task_id uuid).'
        when 'cancel' then ' It must return text.'
        else ' It must return jsonb.' end
        || format(' Its owner grants it: grant usage on schema %s to holdfast_caller; grant execute on function %s to '
          'holdfast_caller. holdfast process check shows what else is missing. In a database of a single login, it '
          'must belong to that login.', split_part(name, '.', 1), name);
  end if;
  return _found;
end
$$;

-- Returns how a task ended, and why, or null while it waits or runs. The end is succeeded, failed, dead_letter,
-- cancelled, deleted, or missing if the task no longer exists. For the supervisor that waits for the task.
-- For holdfast_process. Locks: nothing.
create or replace function queues.ending_of(task_id uuid, out status text, out reason text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select o.status, o.reason into status, reason from queues.outcome o where o.task_id = ending_of.task_id;
  if found or exists (select from queues.ready r where r.task_id = ending_of.task_id)
    or exists (select from queues.lease l where l.task_id = ending_of.task_id)
  then
    return;
  end if;
  select 'deleted', d.reason into status, reason from queues.deletion d where d.task_id = ending_of.task_id;
  if not found then
    status := 'missing';
  end if;
end
$$;

-- Marks unfinished processes whose supervisor is missing (orphaned) or fails (failing). Examines the processes after
-- the given one, in order, and returns where to continue, or null at the end. A supervisor is missing if its task was
-- cancelled, failed, was deleted or no longer exists. Nudges a supervisor whose awaited task has ended without a
-- notification.
-- For holdfast_worker. Locks: the rows that it marks, then ready rows of supervisors, without waiting.
create or replace function queues.find_orphans(
  after_process text default null, after_process_id bigint default null, max_processes integer default 1000,
  out process text, out process_id bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _nudged uuid[];
begin
  perform queues.check_number('max_processes', max_processes, 1, 10000);
  with looked as materialized (
    select i.process, i.process_id, i.task_id, i.trouble, case
        when waiting.attempt is null and held.attempt is null then 'orphaned'
        when coalesce(waiting.attempt, held.attempt - 1) > 0 then 'failing' end as found,
      case when i.awaited_task_id is not null and waiting.run_at > _now
        and not exists (select from queues.ready r where r.task_id = i.awaited_task_id)
        and not exists (select from queues.lease l where l.task_id = i.awaited_task_id) then i.task_id end as nudged
    from (
      select i.process, i.process_id, i.task_id, i.awaited_task_id, i.trouble from queues.process_instance i
      where i.ended_at is null
        and (i.process, i.process_id) > (coalesce(after_process, ''), coalesce(after_process_id, 0))
      order by i.process, i.process_id limit max_processes) i
    left join queues.ready waiting on waiting.task_id = i.task_id
    left join queues.lease held on held.task_id = i.task_id),
  changed as (
    select i.process, i.process_id, i.task_id, l.found from looked l
    join queues.process_instance i on i.process = l.process and i.process_id = l.process_id and i.task_id = l.task_id
    where l.found is distinct from l.trouble for update of i skip locked),
  marked as (
    update queues.process_instance i set trouble = c.found, troubled_at = case when c.found is not null then _now end
    from changed c where i.process = c.process and i.process_id = c.process_id and i.task_id = c.task_id
      and i.ended_at is null)
  select (array_agg(l.process order by l.process desc, l.process_id desc))[1],
    (array_agg(l.process_id order by l.process desc, l.process_id desc))[1],
    array_agg(l.nudged) filter (where l.nudged is not null)
  into process, process_id, _nudged from looked l having count(*) = max_processes or count(l.nudged) > 0;
  perform queues.nudge_waiting(_nudged, _now);
end
$$;

-- Makes waiting tasks due now, skipping those that another transaction holds. The supervisor of a process that is
-- skipped is found by find_orphans, which looks at all processes in turn.
-- Internal: called by call_error_handlers and find_orphans. Locks: ready rows, without waiting.
create or replace function queues.nudge_waiting(task_ids uuid[], now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _task_id uuid;
begin
  for _task_id in
    select r.task_id from queues.ready r where r.task_id = any (task_ids) and r.run_at > now order by r.task_id
    for update skip locked
  loop
    perform queues.move_waiting(_task_id, now, 'nudged', now);
  end loop;
end
$$;

-- Returns whether a process has ended or has a task that runs its supervisor next. Then there is nothing to repair. For
-- the repair function of a process, which checks again after it has locked the root.
-- For holdfast_process. Locks: nothing.
create or replace function queues.is_supervised(process text, process_id bigint)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from queues.process_instance i
    where i.process = is_supervised.process and i.process_id = is_supervised.process_id
      and (i.ended_at is not null or exists (select from queues.ready r where r.task_id = i.task_id)
        or exists (select from queues.lease l where l.task_id = i.task_id)))
$$;

-- Returns instances of a process, the highest id first, or of all processes, newest first: all of them, those that have
-- not ended (unfinished), or those in trouble. `before` continues after the instance with this id.
-- For holdfast_reader. Locks: nothing.
create or replace function queues.list_process_instances(
  of_process text default null, state text default null, before bigint default null,
  max_instances integer default 50)
returns table (
  process text, process_id bigint, status text, decision text, reason text, created_at timestamptz, created_by text,
  updated_at timestamptz, next_run_at timestamptz, task_id uuid, awaited_task_id uuid, trouble text,
  troubled_at timestamptz, repairs integer, repaired_at timestamptz, ended_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  perform queues.check_number('max_instances', max_instances, 1, 1000);
  if before is not null and of_process is null then
    raise exception using errcode = 'QF400', message = 'before needs of_process: ids are those of one process';
  end if;
  if state not in ('unfinished', 'trouble') then
    raise exception using errcode = 'QF400', message = 'state must be unfinished or trouble';
  end if;
  return query
  select i.process, i.process_id, queues.process_status_of(i.decision, i.ended_at), i.decision, i.reason,
    i.created_at, i.created_by, i.updated_at, i.next_run_at, i.task_id, i.awaited_task_id, i.trouble, i.troubled_at,
    i.repairs, i.repaired_at, i.ended_at
  from queues.process p
  -- One query per state, each with the condition of its index. Only the one that is asked for runs.
  cross join lateral (
    (select i.* from queues.process_instance i
    where list_process_instances.state is null
      and i.process = p.process and (before is null or i.process_id < before)
    order by i.process desc, i.process_id desc limit max_instances)
    union all
    (select i.* from queues.process_instance i
    where list_process_instances.state = 'unfinished' and i.ended_at is null
      and i.process = p.process and (before is null or i.process_id < before)
    order by i.process desc, i.process_id desc limit max_instances)
    union all
    (select i.* from queues.process_instance i
    where list_process_instances.state = 'trouble' and i.trouble is not null
      and i.process = p.process and (before is null or i.process_id < before)
    order by i.process desc, i.process_id desc limit max_instances)) i
  where of_process is null or p.process = of_process
  -- Of one process by the ids by which it is paged: an instance may be created before one that has a lower id.
  order by case when of_process is null then i.created_at end desc, i.process, i.process_id desc limit max_instances;
end
$$;

-- Returns the status of a process: how it ended, else scheduled before it has started, else running.
create or replace function queues.process_status_of(decision text, ended_at timestamptz)
returns text
language sql immutable
as $$
  select case when ended_at is not null then decision
    when decision is null or decision = 'sleep' then 'scheduled' else 'running' end
$$;

-- Returns every registered process: how many instances have not ended and how many are in trouble, each counted up to
-- max_counted, and when the newest was started.
-- For holdfast_reader. Locks: nothing.
create or replace function queues.list_processes(max_counted integer default 1000)
returns table (
  process text, kind text, supervisor text, can_start boolean, unfinished bigint, in_trouble bigint,
  newest_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
  perform queues.check_number('max_counted', max_counted, 1, 100000);
  return query
  select p.process, p.kind, p.supervisor, (queues.find_process_function(p.kickoff, 'kickoff')).owner is not null,
    (select count(*) from (
      select from queues.process_instance i where i.process = p.process and i.ended_at is null limit max_counted) i),
    (select count(*) from (
      select from queues.process_instance i where i.process = p.process and i.trouble is not null
      limit max_counted) i),
    (select i.created_at from queues.process_instance i where i.process = p.process
      order by i.process_id desc limit 1)
  from queues.process p
  order by p.process;
end
$$;

-- Returns when a supervisor runs again: not before the time that it waits for, then at half of what remains. After the
-- expected time has passed, at half of the time since then. Never sooner than the minimum.
-- For holdfast_process.
create or replace function queues.next_check(
  not_before timestamptz, expected_by timestamptz, minimum interval default '5 seconds')
returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case when not_before > c.now then not_before
    else c.now + greatest(minimum, (expected_by - c.now) / 2, (c.now - expected_by) / 2) end
  from (select queues.clock() as now) c
$$;

-- Records which task runs the supervisor of a process next, or that the process has ended. Notifies those who wait for
-- the end. A kickoff calls it with the first task, a supervisor in each run with its decision, and a repair with the
-- task that replaces a missing one. Without a next task, the decision is the end. Members of holdfast_process trust one
-- another, as they do when they enqueue a db_function.
-- For holdfast_process. Locks: the row of the process, after its root row and before the waiters.
create or replace function queues.note_supervision(
  process text, process_id bigint, next_task_id uuid, next_run_at timestamptz default null,
  decision text default null, reason text default null, awaited_task_id uuid default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _now constant timestamptz := queues.clock();
  _supervisor text;
  _is_python boolean;
  _wait_key uuid;
begin
  select p.supervisor, p.kind = 'python' into _supervisor, _is_python
  from queues.process p where p.process = note_supervision.process;
  if _supervisor is null then
    raise exception using errcode = 'QF404', message = format('there is no process %s', coalesce(process, 'null')),
      hint = 'Register it with queues.register_process.';
  elsif process_id is null or next_task_id is null and decision is null then
    raise exception using errcode = 'QF400',
      message = 'note_supervision needs a process_id, and a next task or the decision that ends the process';
  elsif next_task_id is not null and not exists (
    select from queues.task t where t.task_id = next_task_id and case when _is_python
      then t.executor = 'python' and t.type = _supervisor
      else t.executor = 'db_function' and t.payload ->> 'db_function' = _supervisor end)
  then
    raise exception using errcode = 'QF400', message = format('task %s does not run %s', next_task_id, _supervisor);
  end if;
  insert into queues.process_instance as i (
    process, process_id, created_at, created_by, namespace, updated_at, decision, reason, next_run_at, task_id,
    awaited_task_id, ended_at)
  values (process, process_id, _now, queues.actor(), queues.namespace(), _now, left(decision, 200), left(reason, 2000),
    next_run_at, next_task_id, awaited_task_id,
    case when next_task_id is null then _now end)
  on conflict on constraint process_instance_pkey do update
  set updated_at = _now, decision = coalesce(excluded.decision, i.decision),
    reason = coalesce(excluded.reason, i.reason), next_run_at = excluded.next_run_at, task_id = excluded.task_id,
    ended_at = excluded.ended_at,
    awaited_task_id = case when excluded.decision is null then i.awaited_task_id else excluded.awaited_task_id end,
    repairs = case when excluded.decision is null then i.repairs + 1 else 0 end,
    repaired_at = case when excluded.decision is null then _now end,
    trouble = null, troubled_at = null
  where i.ended_at is null
  returning i.wait_key into _wait_key;
  if not found then
    raise exception using errcode = 'QF412', message = format('%s %s has ended', process, process_id);
  end if;
  if next_task_id is null and exists (select from queues.waiter w where w.task_id = _wait_key)
    and queues.may_notify()
  then
    perform pg_notify('holdfast_done', _wait_key::text);
    -- A row that an open call of watch_processes holds is left for the sweep.
    delete from queues.waiter w where w.task_id in (
      select held.task_id from queues.waiter held where held.task_id = _wait_key for update skip locked);
  end if;
end
$$;

-- Makes a waiting task due now and returns whether it waited for a later time. For the handlers of a business process,
-- which know the supervisor that waits for them: the right to execute this function is the authority, in any session. A
-- missing task is not an error.
-- For holdfast_process. Locks: the ready row, by lock_task.
create or replace function queues.nudge(task_id uuid)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _run_at timestamptz;
begin
  if not exists (select from queues.ready r where r.task_id = nudge.task_id and r.run_at > _now) then
    return false;
  end if;
  select l.run_at into _run_at from queues.lock_task(task_id, array['ready']) l where l.place = 'ready';
  if (_run_at > _now) is not true then
    return false;
  end if;
  perform queues.move_waiting(task_id, _now, 'nudged', _now);
  return true;
end
$$;

-- Lets the supervisor of a process run now, and returns whether it waited for a later time. The act is recorded with
-- the task of the supervisor.
-- For holdfast_client (processes of its namespace) and holdfast_operator. Locks: the ready row of the supervisor, by
-- lock_task.
create or replace function queues.nudge_process(process text, process_id bigint, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _instance queues.process_instance;
  _looked uuid;
  _found record;
begin
  -- Looks again if the supervisor has run meanwhile, and another task runs it next.
  for _try in 1..10 loop
    select i.* into _instance from queues.process_instance i
    where i.process = nudge_process.process and i.process_id = nudge_process.process_id
      and (queues.has_role('operator') or i.namespace = queues.namespace());
    if not found then
      raise exception using errcode = 'QF404', message = format('there is no %s %s', coalesce(process, 'process'),
          coalesce(process_id::text, 'null')),
        hint = 'It may belong to another namespace.';
    elsif _instance.ended_at is not null then
      raise exception using errcode = 'QF412', message = format('%s %s has ended', process, process_id);
    end if;
    exit when _instance.task_id = _looked;
    _looked := _instance.task_id;
    select l.* into _found from queues.lock_task(_looked, array['ready']) l;
    if _found.place = 'lease' or _found.place = 'ready' and _found.run_at <= _now then
      return false;
    elsif _found.place = 'ready' then
      perform queues.move_waiting(_looked, _now, concat_ws(': ', 'nudged', reason), _now);
      return true;
    end if;
  end loop;
  raise exception using errcode = 'QF412', message = format('%s %s has no supervisor', process, process_id),
    hint = 'The leader enqueues a new one.';
end
$$;

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

-- Returns what happened to an instance of a process, in order and at most the last max_steps, as the history function
-- of the process tells it. The function runs with the rights of its owner, for the namespace of the instance, and what
-- it changes is undone.
-- For holdfast_reader. Locks: what the function locks.
create or replace function queues.process_history(process text, process_id bigint, max_steps integer default 1000)
returns table (at timestamptz, what text, reason text, task_id uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespace constant text := (select i.namespace from queues.process_instance i
    where i.process = process_history.process and i.process_id = process_history.process_id);
begin
  perform queues.check_number('max_steps', max_steps, 1, 10000);
  return query
  select (s.step ->> 0)::timestamptz, s.step ->> 1, s.step ->> 2, (s.step ->> 3)::uuid
  from jsonb_array_elements(queues.call_process(process_history.process, 'history',
    jsonb_build_array(process_history.process_id, max_steps), _namespace)) with ordinality s(step, place)
  order by s.place;
end
$$;

-- Returns the processes with instances to repair now, and the repair function of each: one row per process and
-- namespace, with the wait key of an instance. Looks at the first thousand instances of each process.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.processes_to_repair()
returns table (process text, repair text, wait_key uuid)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select distinct on (p.process, i.namespace) p.process, p.repair, i.wait_key
  from queues.process p
  cross join lateral queues.orphans(p.process, 1000) o(process_id)
  join queues.process_instance i on i.process = p.process and i.process_id = o.process_id
  order by p.process, i.namespace, i.process_id
$$;

-- Removes registry rows of processes that ended longer ago than the policy for history keeps. Removes a limited number
-- per call and returns how many. The facts in their own schemas stay.
-- For holdfast_worker and holdfast_operator. Locks: the rows that it removes, without waiting.
create or replace function queues.prune_processes(max_processes integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _cutoff constant timestamptz := queues.clock() - (select r.keep from queues.retention r where r.status = 'history'
    and r.type_prefix = '');
  _removed integer;
begin
  perform queues.check_number('max_processes', max_processes, 1, 10000);
  delete from queues.process_instance i
  where (i.process, i.process_id) in (
    select old.process, old.process_id from queues.process_instance old
    where old.ended_at < _cutoff order by old.ended_at limit max_processes for update skip locked);
  get diagnostics _removed = row_count;
  return _removed;
end
$$;

-- Stores the digests of the files that were last applied for a process.
-- For holdfast_process, only for the owner of the process. Locks: the row of the process.
create or replace function queues.record_process_files(process text, files jsonb)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _owner oid;
begin
  select c.relowner into _owner from queues.process p
  join pg_namespace n on n.nspname = p.schema_name join pg_class c on c.relnamespace = n.oid
    and c.relname = p.root_table
  where p.process = record_process_files.process;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no process %s', coalesce(process, 'null'));
  elsif jsonb_typeof(files) is distinct from 'object' or length(files::text) > 65536 then
    raise exception using errcode = 'QF400', message = 'files must be an object of digests, of at most 64 KiB';
  end if;
  perform queues.check_process_owner(process, _owner);
  update queues.process p set files = record_process_files.files where p.process = record_process_files.process;
end
$$;

-- Refuses a caller that is neither the owner of a process nor a member of that role. The caller is the role that the
-- session has set, or its login: a function with its owner's rights sees no other, and a session can only set roles of
-- which it is a member. A function of a process would be asked about the role of its caller, so it is refused.
create or replace function queues.check_process_owner(process text, owner oid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _caller constant name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
  if (internal.current_call()).namespace is not null then
    raise exception using errcode = 'QF403',
      message = format('a function of a process may not register the process %s', process);
  elsif not pg_has_role(_caller, owner, 'member') then
    raise exception using errcode = 'QF403',
      message = format('%I may not register the process %s, which belongs to %s', _caller, process, owner::regrole),
      hint = format('Call it as its owner: set role %s', owner::regrole);
  end if;
end
$$;

-- The facts of messages.
do $install$
declare
  _table text;
begin
  for _table in
    select c.relname from pg_catalog.pg_class c
    where c.relnamespace = 'comms'::pg_catalog.regnamespace and c.relkind = 'r'
      and (c.relname in ('message', 'message_erased')
        or c.relname ~ '^send_task(_scheduled|_failed|_succeeded|_reported|_supervised)?$')
      and not exists (select from pg_catalog.pg_trigger t where t.tgrelid = c.oid and t.tgname = 'append_only')
  loop
    execute pg_catalog.format(
      'create trigger append_only before update or delete or truncate on comms.%I '
      'for each statement execute function queues.refuse_change()', _table);
    -- Also where triggers are disabled, as in a session that restores a dump or applies a replica's changes.
    execute pg_catalog.format('alter table comms.%I enable always trigger append_only', _table);
  end loop;
end
$install$;

-- Registers a business process, or changes its registration, on behalf of its owner. The leader then repairs it, health
-- checks it, and clients can wait for it. One role must own its functions and its root table; it must be a member of
-- holdfast_process and not a superuser. The caller must be that role or a member of it. The supervisor of the kind
-- python is not a function but a type of tasks. With a kickoff, operators can start an instance from the dashboard.
-- For holdfast_process. Locks: the row of the process.
create or replace function queues.register_process(
  process text, root_table text, supervisor text, repair text, cancel text, history text, kind text default 'attempts',
  kickoff text default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _schema constant text := split_part(process, '.', 1);
  _owner oid;
begin
  if process is null or process !~ '^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$' then
    raise exception using errcode = 'QF400',
      message = format('%s cannot be the name of a process', coalesce(to_json(left(process, 130))::text, 'null')),
      hint = 'Give the name of its schema, or schema.name if a schema has several.';
  elsif kind is null or kind not in ('attempts', 'decision', 'python') then
    raise exception using errcode = 'QF400', message = 'kind must be attempts, decision or python';
  elsif kind = 'python' and coalesce(supervisor, '') !~ ('^' || _schema || '\.[a-z_][a-z0-9_.]{0,62}$') then
    raise exception using errcode = 'QF400',
      message = format('the supervisor of %s must be a type of tasks that begins with %s.', process, _schema);
  end if;
  select c.relowner into _owner from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = _schema and c.relname = root_table and c.relkind in ('r', 'p');
  if not found then
    raise exception using errcode = 'QF400',
      message = format('there is no table %s.%s for the process %s', _schema, coalesce(root_table, 'null'), process);
  end if;
  perform queues.check_process_owner(process, _owner);
  if (select r.rolsuper from pg_roles r where r.oid = _owner)
    or not queues.has_role('process', pg_get_userbyid(_owner))
  then
    raise exception using errcode = 'QF403',
      message = format('the owner %s of %s is a superuser, or not a member of holdfast_process',
        _owner::regrole, process);
  end if;
  if exists (
    select from (values ('supervisor', supervisor, kind <> 'python'), ('repair', repair, true),
      ('cancel', cancel, true), ('history', history, true), ('kickoff', kickoff, kickoff is not null)
    ) f(use, name, is_function)
    where case when f.is_function then split_part(f.name, '.', 1) is distinct from _schema
      or queues.process_function(f.name, f.use) <> _owner end)
  then
    raise exception using errcode = 'QF403',
      message = format('the functions of %s must be in the schema %s and belong to %s', process, _schema,
        _owner::regrole);
  end if;
  insert into queues.process as p (process, kind, schema_name, root_table, supervisor, repair, cancel, history,
    kickoff, registered_at, registered_by)
  values (process, kind, _schema, root_table, supervisor, repair, cancel, history, kickoff, queues.clock(),
    session_user)
  on conflict on constraint process_pkey do update
  set kind = excluded.kind, root_table = excluded.root_table, supervisor = excluded.supervisor,
    repair = excluded.repair, cancel = excluded.cancel, history = excluded.history,
    kickoff = excluded.kickoff, registered_at = excluded.registered_at, registered_by = excluded.registered_by
  where (p.kind, p.root_table, p.supervisor, p.repair, p.cancel, p.history, p.kickoff)
    is distinct from (excluded.kind, excluded.root_table, excluded.supervisor, excluded.repair, excluded.cancel,
      excluded.history, excluded.kickoff);
end
$$;

-- Starts an instance of a process in the caller's transaction with the kickoff that the process has registered, and
-- returns its id. The kickoff runs with the rights of its owner, for the namespace of the caller.
-- For holdfast_client. Locks: what the kickoff locks.
create or replace function queues.start_process(process text, input jsonb)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _process_id constant bigint := queues.call_process(process, 'kickoff', input);
begin
  if _process_id is null then
    raise exception using errcode = 'QF412',
      message = format('the kickoff of %s returned null, not the id of an instance', process);
  end if;
  return _process_id;
end
$$;

-- Enqueues calls of the error handlers of tasks that ended without a report of their worker. The supervisor that waits
-- for such a task must learn of it. Each call is a separate task that is retried until it succeeds. Only for e-mail and
-- text messages, whose callers had the authority to name a function. Without a kind, uses that of the task's last
-- error, with its message. Also nudges supervisors that recorded which task they wait for.
-- Internal: called by sweep, finish and cancel. Locks: ready rows of supervisors, without waiting.
create or replace function queues.call_error_handlers(
  task_ids uuid[], kind text, message text, permanent boolean, outcome_unknown boolean, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _ended record;
  _task_id uuid;
  _payload jsonb;
begin
  for _ended in
    select t.task_id, t.type, t.queue, t.priority, t.payload, t.enqueued_by, t.namespace, t.metadata, e.kind, e.message
    from queues.task t
    left join lateral (
      select e.kind, e.message from queues.error e where e.task_id = t.task_id and call_error_handlers.kind is null
      order by e.error_id desc limit 1) e on true
    where t.task_id = any (task_ids) and t.executor in ('email', 'sms')
      and jsonb_typeof(t.payload -> 'error_handler') = 'string'
  loop
    _task_id := queues.new_task_id();
    _payload := jsonb_build_object('task_type', 'db_function', 'db_function', _ended.payload -> 'error_handler',
      'original_payload', _ended.payload, 'error', jsonb_build_object('kind', coalesce(kind, _ended.kind),
        'message', coalesce(message, _ended.message), 'permanent', permanent,
        'outcome_unknown', outcome_unknown, 'task_id', _ended.task_id));
    -- Not with enqueue, because a payload that contains another one may exceed its limits, and a sweep must not fail.
    insert into queues.task (
      task_id, created_at, run_at, priority, max_attempts, type, queue, executor, enqueued_by, namespace,
      payload, metadata)
    values (_task_id, now, now, _ended.priority, 25, _ended.type, _ended.queue, 'db_function', _ended.enqueued_by,
      _ended.namespace, _payload, _ended.metadata);
    insert into queues.ready (task_id, run_at, lane_id, attempt)
    values (_task_id, now, queues.lane_for(_ended.queue, _ended.type, _ended.priority, null, _ended.namespace), 0);
    perform queues.wake_for(_task_id);
  end loop;
  perform queues.nudge_waiting(array(
    select i.task_id from queues.process_instance i where i.awaited_task_id = any (task_ids) and i.ended_at is null),
      now);
end
$$;

-- Does the same as watch_many for processes, which are identified by their wait_key. Returns the current status of each
-- that the session may see.
-- For holdfast_client (processes of its namespace), holdfast_reader and holdfast_operator. Locks: the waiters' rows in
-- the order of key.
create or replace function queues.watch_processes(wait_keys uuid[], ttl interval default '1 minute')
returns table (wait_key uuid, status text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := case when not queues.may_read_all() then queues.namespace() end;
  _seen uuid[];
begin
  if wait_keys is null or cardinality(wait_keys) > 10000 then
    raise exception using errcode = 'QF400', message = 'wait_keys must be an array of at most 10000';
  elsif ttl is null or ttl not between interval '1 second' and interval '1 hour' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 second and 1 hour';
  end if;
  _seen := array(
    select i.wait_key from queues.process_instance i
    where i.wait_key = any (wait_keys) and (_namespace is null or i.namespace = _namespace) order by i.wait_key);
  insert into queues.waiter as w (task_id, until)
  select i.wait_key, _now + ttl from queues.process_instance i
  where i.wait_key = any (_seen) and i.ended_at is null order by i.wait_key
  on conflict (task_id) do update set until = excluded.until
  where w.until < excluded.until - ttl / 2;
  -- A separate statement, so that it sees ends that were committed meanwhile.
  return query
  select i.wait_key, queues.process_status_of(i.decision, i.ended_at) from queues.process_instance i
  where i.wait_key = any (_seen);
end
$$;
