-- Notifies clients that wait for these tasks, subscriptions to task events, and idle workers behind the same limit.
-- Sends nothing to absent receivers. The worker is one that looks for due tasks by itself, if any. Every finish calls
-- it, so all checks are one statement, and each is one lookup in an index that is mostly empty. Those who are not
-- notified look again by themselves.
-- Internal.
create or replace function queues.notify_waiters(task_ids uuid[], worker_id text default null)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _awaited boolean;
  _subscribed boolean;
  _limited boolean;
  _joined boolean;
begin
  select exists (select from queues.waiter),
    exists (select from queues.subscription s where s.engine_events),
    exists (select from queues.task_limit) or exists (select from queues.lane l where l.concurrency_key > ''),
    exists (select from queues.wait w where w.on_task is not null)
  into _awaited, _subscribed, _limited, _joined;
  if _awaited and queues.may_notify() then
    perform pg_notify('holdfast_done', w.task_id::text)
    from queues.waiter w join queues.outcome o on o.task_id = w.task_id
    where w.task_id = any (task_ids);
    -- A row that an open call of watch holds is left for the sweep, without waiting.
    delete from queues.waiter w
    where w.task_id in (
      select held.task_id from queues.waiter held
      where held.task_id = any (task_ids) and exists (select from queues.outcome o where o.task_id = held.task_id)
      for update skip locked);
  end if;
  if _subscribed then
    perform queues.emit_task_events(task_ids);
  end if;
  if _limited then
    perform queues.wake_for_freed_limits(task_ids, worker_id);
  end if;
  if _joined then
    perform queues.mark_joins(task_ids);
  end if;
end
$$;

comment on function queues.notify_waiters(uuid[], text) is
  'Notifies clients that wait for these tasks, subscriptions to task events, and idle workers behind the same limit.';
