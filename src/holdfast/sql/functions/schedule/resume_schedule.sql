-- Lets a paused schedule fire again, from now on: its times during the pause are not caught up. Answers whether it was paused.
-- For holdfast_client (its own schedules) and holdfast_operator. Locks: the schedule.
create or replace function queues.resume_schedule(name text, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  reason := left(reason, 2000);
  if (queues.own_schedule(name)).paused_at is null then
    return false;
  end if;
  update queues.schedule s
  set version = s.version + 1, paused_at = null, paused_by = null, pause_reason = null, next_at = null, plan_after = _now, decided_at = _now
  where s.name = resume_schedule.name;
  insert into queues.schedule_act (schedule, act, occurred_at, actor, reason) values (name, 'resumed', _now, session_user, reason);
  return true;
end
$$;

comment on function queues.resume_schedule(text, text) is 'Lets a paused schedule fire again, from now on.';
