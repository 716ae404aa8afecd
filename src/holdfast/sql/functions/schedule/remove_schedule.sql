-- Removes a schedule; its tasks stay. A declared schedule comes back when its application declares it again.
-- For holdfast_client (schedules of its namespace) and holdfast_operator. Locks: the schedule.
create or replace function queues.remove_schedule(name text, reason text default null, namespace text default null)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _schedule constant queues.schedule := queues.lock_own_schedule(name, namespace);
begin
  delete from queues.schedule s where s.name = _schedule.name and s.namespace = _schedule.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
  values (name, _schedule.namespace, 'removed', queues.clock(), queues.actor(), left(reason, 2000));
end
$$;

comment on function queues.remove_schedule(text, text, text) is 'Removes a schedule; its tasks stay.';
