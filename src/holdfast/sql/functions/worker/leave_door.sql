-- Keeps no door any more. Ring once after it: what came until now woke nobody. For holdfast_worker. Locks: none.
create or replace function queues.leave_door(queues text[])
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select pg_advisory_unlock(queues.door_of(q.queue)) from unnest(leave_door.queues) q(queue)
$$;

comment on function queues.leave_door(text[]) is 'Keeps no door any more.';
