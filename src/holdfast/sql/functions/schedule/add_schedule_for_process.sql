-- Adds a schedule for holdfast_process: every executor, including those with the rights of the database. As in
-- enqueue_for_process, the right to execute it is the authority.
-- Locks: the schedule.
create or replace function queues.add_schedule_for_process(schedule jsonb)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return queues.insert_schedule(schedule, for_process => true);
end
$$;

comment on function queues.add_schedule_for_process(jsonb) is
  'Adds a schedule for holdfast_process: every executor, including those with the rights of the database.';
