-- Tells those who wait for one of these tasks that it ended, and nobody if nobody waits.
create or replace function queues.tell_waiters(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (select from queues.waiter) then
    perform pg_notify('holdfast_done', w.task_id::text)
    from queues.waiter w join queues.outcome o on o.task_id = w.task_id
    where w.task_id = any (task_ids);
    -- A row that a session holds by an open call of watch is left for the sweep: nobody waits for it here.
    delete from queues.waiter w
    where w.task_id in (
      select held.task_id from queues.waiter held
      where held.task_id = any (task_ids) and exists (select from queues.outcome o where o.task_id = held.task_id)
      for update skip locked);
  end if;
end
$$;

comment on function queues.tell_waiters(uuid[]) is
  'Tells those who wait for one of these tasks that it ended, and nobody if nobody waits.';
