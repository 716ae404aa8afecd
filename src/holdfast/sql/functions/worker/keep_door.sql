-- Keeps the doors of queues until leave_door or the end of the session: meanwhile those who enqueue wake nobody, and whoever keeps the
-- door rings for them. Answers the queues whose doors are now kept by this session; others keep the rest. A session that is silent for
-- two seconds is ended, so that a door is not kept by somebody who is stuck. For holdfast_worker. Locks: the doors, without waiting.
create or replace function queues.keep_door(queues text[])
returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform set_config('idle_session_timeout', '2s', false);
  return array(
    select q.queue from (select distinct asked.queue from unnest(keep_door.queues) asked(queue) where asked.queue is not null offset 0) q
    where pg_try_advisory_lock(queues.door_of(q.queue)));
end
$$;

comment on function queues.keep_door(text[]) is 'Keeps the doors of queues: meanwhile those who enqueue wake nobody.';
