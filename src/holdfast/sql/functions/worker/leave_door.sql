-- Stops throttling the wake-ups of queues. Call ring once afterwards, because tasks enqueued until now woke no worker.
-- For holdfast_worker. Locks: the rows of queues.door.
create or replace function queues.leave_door(worker_id text, queues text[])
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _hasty constant boolean := queues.allow_to_lose();
begin
  delete from queues.door d
  where d.queue in (
    select kept.queue from queues.door kept
    where kept.queue = any (leave_door.queues) and kept.worker_id = leave_door.worker_id for update skip locked);
end
$$;

comment on function queues.leave_door(text, text[]) is 'Stops throttling the wake-ups of queues.';
