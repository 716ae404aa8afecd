-- Locks a schedule and answers it, or refuses: there is none, or the session may not touch it. Both read the same.
-- Locks: the schedule.
create or replace function queues.own_schedule(name text)
returns queues.schedule
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _found queues.schedule;
begin
  select s.* into _found from queues.schedule s
  where s.name = own_schedule.name
    and (s.created_by = session_user or pg_has_role(session_user, 'holdfast_operator', 'member'))
  for update;
  if not found then
    raise exception using errcode = 'QF404', message = format('there is no schedule %s', coalesce(to_json(name)::text, 'null')),
      hint = 'Look for it with queues.schedule_status; it may belong to another login.';
  end if;
  return _found;
end
$$;

comment on function queues.own_schedule(text) is 'Locks a schedule and answers it, or refuses.';
