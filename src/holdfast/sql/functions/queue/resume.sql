-- Allows claims from a paused queue again and returns whether it was paused.
-- For holdfast_operator. Locks: the queue's row in paused_queue.
create or replace function queues.resume(queue text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_name('queue', queue);
  reason := left(reason, 2000);
  delete from queues.paused_queue p where p.queue = resume.queue;
  if not found then
    return false;
  end if;
  insert into queues.act (queue, act, occurred_at, actor, reason)
  values (queue, 'resumed', queues.clock(), queues.actor(), reason);
  if queues.may_notify() then
    perform pg_notify('holdfast', resume.queue);
  end if;
  return true;
end
$$;

comment on function queues.resume(text, text) is
  'Allows claims from a paused queue again and returns whether it was paused.';
