-- Stops claims from a queue and returns whether it was active; running tasks continue.
-- For holdfast_operator. Locks: the queue's row in paused_queue.
create or replace function queues.pause(queue text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_name('queue', queue);
  reason := left(reason, 2000);
  insert into queues.paused_queue (queue, paused_at, paused_by, reason)
  values (queue, queues.clock(), queues.actor(), reason) on conflict do nothing;
  if not found then
    return false;
  end if;
  insert into queues.act (queue, act, occurred_at, actor, reason)
  values (queue, 'paused', queues.clock(), queues.actor(), reason);
  return true;
end
$$;

comment on function queues.pause(text, text) is
  'Stops claims from a queue and returns whether it was active; running tasks continue.';
