-- Cancels, retries, deletes, restores or reschedules up to 50 tasks, each by the function for one task and with its
-- rights, and returns what became of each: a task that is not in a status for it, or that is refused, is not changed,
-- and problem says why. Tasks that the session may not change are left out. A dry run takes up to 10,000 and changes
-- nothing. Each task is a subtransaction: PostgreSQL keeps 64 of a transaction in memory, and with more of them, every
-- other session that looks at such a row has to read pg_subtrans.
-- For holdfast_client (cancel and reschedule tasks of its namespace) and holdfast_operator; it has the rights of the
-- caller. Locks: those of the functions for one task, by task_id; a task that another transaction holds for half a
-- second is not changed.
create or replace function queues.act_on_tasks(
  act text, task_ids uuid[], reason text default null, run_at timestamptz default null, dry_run boolean default false)
returns table (task_id uuid, changed boolean, status text, problem text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _most constant integer := case when coalesce(dry_run, false) then 10000 else 50 end;
  _operates constant boolean := queues.has_role('operator');
  _allowed constant text[] := case act_on_tasks.act
    when 'cancel' then array['scheduled', 'suspended', 'pending', 'retrying', 'claimed', 'running']
    when 'reschedule' then array['scheduled', 'suspended', 'pending', 'retrying']
    when 'retry' then array['failed', 'dead_letter', 'cancelled'] end;
begin
  if act_on_tasks.act is null or act_on_tasks.act not in ('cancel', 'retry', 'delete', 'restore', 'reschedule') then
    raise exception using errcode = 'QF400', message = format('act %s is unknown', to_json(act_on_tasks.act)),
      hint = 'Allowed: cancel, retry, delete, restore, reschedule.';
  elsif act_on_tasks.act = 'reschedule' and run_at is null then
    raise exception using errcode = 'QF400', message = 'run_at is required to reschedule tasks';
  elsif task_ids is null or cardinality(task_ids) > _most then
    raise exception using errcode = 'QF413',
      message = format('task_ids must be an array of at most %s elements', _most);
  end if;
  for task_id, status, problem in
    select s.task_id, s.status, case
      when (s.deleted_at is null) = (act_on_tasks.act = 'restore')
      then case when s.deleted_at is null then 'it is not deleted' else 'it is deleted' end
      when s.status <> all (_allowed) then format('it is %s', s.status) end
    from queues.tasks_of(task_ids) s
    where _operates or s.namespace = queues.namespace()
    order by s.task_id
  loop
    changed := problem is null;
    if changed and not coalesce(dry_run, false) then
      begin
        -- Not one expression: PostgreSQL would check the rights on all of these functions.
        if act_on_tasks.act = 'cancel' then
          status := queues.cancel(task_id, reason);
          changed := status = 'cancelled';
        elsif act_on_tasks.act = 'retry' then
          status := queues.retry(task_id, reason);
        elsif act_on_tasks.act = 'delete' then
          status := queues.delete_task(task_id, reason);
        elsif act_on_tasks.act = 'restore' then
          status := queues.restore_task(task_id, reason);
        else
          status := queues.reschedule(task_id, run_at, reason);
          changed := status = any (_allowed);
        end if;
        problem := case when not changed then format('it is %s', status) end;
      exception
        when lock_not_available then
          changed := false;
          problem := 'another transaction holds it; try again';
        when sqlstate 'QF404' or sqlstate 'QF409' or sqlstate 'QF412' then
          changed := false;
          problem := sqlerrm;
      end;
    end if;
    return next;
  end loop;
end
$$;

comment on function queues.act_on_tasks(text, uuid[], text, timestamptz, boolean) is
  'Cancels, retries, deletes, restores or reschedules tasks, and returns what became of each.';
