-- Declares all schedules of an application in the caller's namespace, and returns the result for each. The result is
-- added, changed, unchanged, or taken if the name belongs to another application of the namespace or was added by hand.
-- Schedules exist once, on the first shard: on another one the result is elsewhere, and what the application had
-- declared there is removed.
-- Schedules that are no longer declared become orphaned: they stay visible and do not fire. Repeated calls change
-- nothing. Only executors that act with the rights of the worker are allowed.
-- For holdfast_client, because a schedule enqueues tasks, which a worker must not be able to do. Locks: schedules, in
-- the order of their names.
create or replace function queues.declare_schedules(application text, schedules jsonb)
returns table (name text, verdict text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('schedules', schedules);
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _namespace constant text := queues.namespace();
begin
  if application is null or application = '' or octet_length(application) > 200 then
    raise exception using errcode = 'QF400', message = 'application must be between 1 and 200 bytes long';
  end if;
  perform queues.check_schedule(e.schedule, false, format('schedules[%s].', e.n - 1), _now)
  from jsonb_array_elements(schedules) with ordinality e(schedule, n);
  if (select count(*) > count(distinct e ->> 'name') from jsonb_array_elements(schedules) e) then
    raise exception using errcode = 'QF400', message = 'two schedules have the same name';
  end if;
  if not queues.is_first_shard() then
    with gone as (
      delete from queues.schedule s where s.namespace = _namespace and s.declared_by = application returning s.name)
    insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
    select g.name, _namespace, 'removed', _now, session_user, 'schedules are on the first shard' from gone g;
    return query
    select e ->> 'name', 'elsewhere' from jsonb_array_elements(schedules) e order by e ->> 'name' collate "C";
    return;
  end if;
  perform from queues.schedule s
  where s.namespace = _namespace
    and (s.declared_by = application or s.name in (select e ->> 'name' from jsonb_array_elements(schedules) e))
  order by s.name for update;

  return query
  select e ->> 'name', queues.upsert_schedule(e, application, false, _now)
  from (select e from jsonb_array_elements(schedules) e order by e ->> 'name' collate "C" offset 0) e;
  perform queues.check_schedules(_namespace);

  return query
  with gone as (
    update queues.schedule s set version = s.version + 1, orphaned_at = _now, changed_at = _now
    where s.namespace = _namespace and s.declared_by = application and s.orphaned_at is null
      and s.name not in (select e ->> 'name' from jsonb_array_elements(schedules) e)
    returning s.name),
  told as (
    insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor)
    select g.name, _namespace, 'orphaned', _now, session_user from gone g)
  select g.name, 'orphaned' from gone g order by g.name;
end
$$;

comment on function queues.declare_schedules(text, jsonb) is
  'Declares all schedules of an application in the caller''s namespace, and returns the result for each.';
