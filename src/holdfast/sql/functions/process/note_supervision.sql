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

comment on function queues.note_supervision(text, bigint, uuid, timestamptz, text, text, uuid) is
  'Records which task runs the supervisor of a process next, or that the process has ended.';
