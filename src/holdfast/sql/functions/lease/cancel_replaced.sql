-- Cancels those of these tasks that wait although a later debounced one was enqueued while a worker held them: they
-- have not begun any more, and older arguments must not overtake newer ones. One that has gone on by ctx.continue_as
-- has begun. Runs after the statement that made them ready, so that it sees an enqueue that is committed; one that is
-- committed later is due after them.
-- Internal: called by release, recover_leases and settle_mixed. Locks: ready rows that the caller has inserted.
create or replace function queues.cancel_replaced(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _replaced uuid;
begin
  for _replaced in
    select r.task_id from queues.ready r
    where r.task_id = any (task_ids) and r.attempt = 0
      and (select a.act from queues.act a where a.task_id = r.task_id and a.act in ('replaced', 'retried')
        order by a.act_id desc limit 1) = 'replaced'
      and queues.current_generation(r.task_id) = 1
    order by r.task_id
  loop
    perform queues.cancel_now(_replaced, 'debounced: replaced by a later one');
  end loop;
end
$$;

comment on function queues.cancel_replaced(uuid[]) is
  'Cancels those of these tasks that wait although a later debounced one was enqueued while a worker held them.';
