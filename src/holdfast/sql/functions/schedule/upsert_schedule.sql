-- Writes one schedule in the caller's namespace and returns added, changed, unchanged or taken. Taken means that the
-- name belongs to another application of the namespace or was added by hand. If the times change, they are computed
-- again from now; otherwise the next time stays.
-- Internal: called by insert_schedule and declare_schedules. Locks: the schedule.
create or replace function queues.upsert_schedule(schedule jsonb, application text, for_process boolean,
  now timestamptz)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _new queues.schedule;
  _old queues.schedule;
  _times_stay boolean;
begin
  _new.name := schedule ->> 'name';
  _new.namespace := queues.namespace();
  _new.task := schedule -> 'task';
  _new.cron := schedule ->> 'cron';
  _new.tz := case when _new.cron is not null then coalesce(schedule ->> 'tz', 'UTC') end;
  -- In seconds: a day of an interval is not a calendar day.
  _new.every := make_interval(secs => extract(epoch from (schedule ->> 'every')::interval)::double precision);
  -- A Monday, so that intervals of whole weeks, days and hours start where users expect it.
  _new.anchor := case when _new.every is not null
    then coalesce((schedule ->> 'anchor')::timestamptz, timestamptz '2001-01-01 00:00Z') end;
  _new.catch_up := coalesce(schedule ->> 'catch_up', 'latest');
  _new.catch_up_limit := coalesce((schedule ->> 'catch_up_limit')::integer, 10);
  _new.jitter := coalesce((schedule ->> 'jitter')::interval, '0');
  _new.overlap := coalesce(schedule ->> 'overlap', 'allow');

  for _try in 1..10 loop
    select s.* into _old from queues.schedule s where s.name = _new.name and s.namespace = _new.namespace for update;
    exit when found;
    insert into queues.schedule (name, namespace, version, decided_at, plan_after, cron, every, anchor, tz, catch_up,
      catch_up_limit, jitter, overlap, task, for_process, declared_by, created_by, created_at, changed_at)
    values (_new.name, _new.namespace, 1, now, now, _new.cron, _new.every, _new.anchor, _new.tz, _new.catch_up,
      _new.catch_up_limit, _new.jitter,
      _new.overlap, _new.task, upsert_schedule.for_process, application, session_user, now, now)
    on conflict do nothing;
    if found then
      insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor)
      values (_new.name, _new.namespace, 'added', now, session_user);
      return 'added';
    end if;
  end loop;
  if _old.name is null then
    raise exception using errcode = 'QF503',
      message = format('schedule %s is added and removed too fast; try again', _new.name);
  end if;

  _times_stay := (_old.cron, _old.every, _old.anchor, _old.tz) is not distinct
    from (_new.cron, _new.every, _new.anchor, _new.tz)
    and _old.orphaned_at is null;
  if _times_stay and _old.declared_by is not distinct from application
    and (_old.task, _old.catch_up, _old.catch_up_limit, _old.jitter, _old.overlap)
      is not distinct from (_new.task, _new.catch_up, _new.catch_up_limit, _new.jitter, _new.overlap)
  then
    return 'unchanged';
  elsif application is null or (_old.declared_by is distinct from application and _old.orphaned_at is null) then
    return 'taken';
  end if;
  update queues.schedule s
  set version = s.version + 1, cron = _new.cron, every = _new.every, anchor = _new.anchor, tz = _new.tz,
    catch_up = _new.catch_up, catch_up_limit = _new.catch_up_limit, jitter = _new.jitter, overlap = _new.overlap,
    task = _new.task, for_process = upsert_schedule.for_process, declared_by = application, created_by = session_user,
    changed_at = now, orphaned_at = null, problem = null, decided_at = now,
    next_at = case when _times_stay then s.next_at end,
    plan_after = case when _times_stay then s.plan_after else now end
  where s.name = _new.name and s.namespace = _new.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor)
  values (_new.name, _new.namespace, 'changed', now, session_user);
  return 'changed';
end
$$;

comment on function queues.upsert_schedule(jsonb, text, boolean, timestamptz) is
  'Writes one schedule in the caller''s namespace and returns added, changed, unchanged or taken.';
