-- Tells those who wait for one of these tasks that it ended, and those who subscribed to events of tasks; nobody if there is nobody.
-- On the way of every finish, so both questions are one statement, and each is one probe of an index that is mostly empty.
create or replace function queues.tell_waiters(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _awaited boolean;
  _subscribed boolean;
begin
  select exists (select from queues.waiter), exists (select from queues.subscription s where s.engine_events)
  into _awaited, _subscribed;
  if _awaited then
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
  if _subscribed then
    perform queues.emit_task_events(task_ids);
  end if;
end
$$;

comment on function queues.tell_waiters(uuid[]) is
  'Tells those who wait for one of these tasks that it ended, and those who subscribed to events of tasks.';
