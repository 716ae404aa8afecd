-- Adds a schedule for holdfast_client: only executors that act with the rights of the worker. As in enqueue_for_client,
-- the right to execute it is the authority.
-- Locks: the schedule.
create or replace function queues.add_schedule_for_client(schedule jsonb)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.insert_schedule(schedule, for_process => false);
end
$$;

comment on function queues.add_schedule_for_client(jsonb) is
  'Adds a schedule for holdfast_client: only executors that act with the rights of the worker.';
