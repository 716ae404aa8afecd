-- Removes a schedule; its tasks stay. One that an application declares comes back when a worker of it starts.
-- For holdfast_client (its own schedules) and holdfast_operator. Locks: the schedule.
create or replace function queues.remove_schedule(name text, reason text default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.own_schedule(name);
  delete from queues.schedule s where s.name = remove_schedule.name;
  insert into queues.schedule_act (schedule, act, occurred_at, actor, reason)
  values (name, 'removed', queues.clock(), session_user, left(reason, 2000));
end
$$;

comment on function queues.remove_schedule(text, text) is 'Removes a schedule; its tasks stay.';
