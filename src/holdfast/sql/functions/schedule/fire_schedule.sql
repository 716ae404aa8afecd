-- Decides on the due times of a schedule, enqueues their tasks and sets the next time, in one step. The owner of the
-- schedule defines the task, never the caller. Returns the decisions; none if the version is outdated or the engine's
-- clock has not reached the times. Only the newest due times are passed: earlier ones count as missed.
-- Internal: called by decide_schedules. Locks: the schedule, without waiting.
create or replace function queues.fire_schedule(
  name text, namespace text, version bigint, nominal_times timestamptz[], next_at timestamptz)
returns table (nominal_at timestamptz, decision text, task_id uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _grace constant interval := '1 minute';
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
  _times timestamptz[];
  _wanted timestamptz[];
  _fire timestamptz[];
  _task_ids uuid[];
begin
  select s.* into _schedule from queues.schedule s
  where s.name = fire_schedule.name and s.namespace = fire_schedule.namespace and s.version = fire_schedule.version
    and s.paused_at is null and s.orphaned_at is null
  for update skip locked;
  if not found or _schedule.next_at is null or _schedule.next_at > _now or _schedule.decided_at > _now then
    return;
  end if;
  select array_agg(distinct t order by t) into _times from unnest(nominal_times) t;
  if _times is distinct from nominal_times or _times[1] is null or _times[1] < _schedule.next_at
    or cardinality(_times) > 1000
    or fire_schedule.next_at is null or fire_schedule.next_at <= _times[cardinality(_times)]
    or exists (select from unnest(_times || fire_schedule.next_at) t where not queues.is_schedule_time(_schedule, t))
  then
    raise exception using errcode = 'QF400',
      message = 'nominal_times must be at most 1000 ascending times of the schedule from its next_at on, and next_at '
        'must be later';
  elsif _times[cardinality(_times)] > _now then
    return;
  end if;

  _wanted := case _schedule.catch_up
    when 'all' then _times[greatest(1, cardinality(_times) - _schedule.catch_up_limit + 1):]
    when 'latest' then _times[cardinality(_times):]
    else array(select t from unnest(_times[cardinality(_times):]) t where t >= _now - _grace) end;
  -- Decisions made before the clock was set back remain valid.
  _fire := array(
    select t from unnest(_wanted) t
    where not exists (
      select from queues.schedule_firing f
      where f.schedule = _schedule.name and f.namespace = _schedule.namespace and f.nominal_at = t)
    order by t);
  if _schedule.overlap = 'skip' and cardinality(_fire) > 0 then
    _fire := case when exists (select from queues.task t where t.task_id = _schedule.last_task_id)
        and not exists (select from queues.outcome o where o.task_id = _schedule.last_task_id)
        and not exists (select from queues.deletion d where d.task_id = _schedule.last_task_id)
      then '{}' else _fire[1:1] end;
  end if;
  if cardinality(_fire) > 0 then
    _task_ids := queues.enqueue_scheduled(_schedule, _fire, _now);
  end if;
  update queues.schedule s
  set version = s.version + 1, next_at = fire_schedule.next_at, decided_at = _now, problem = null,
    last_nominal_at = coalesce(_fire[cardinality(_fire)], s.last_nominal_at),
    last_task_id = coalesce(_task_ids[cardinality(_task_ids)], s.last_task_id)
  where s.name = _schedule.name and s.namespace = _schedule.namespace;

  return query
  insert into queues.schedule_firing as f (schedule, namespace, nominal_at, decided_at, decision, task_id)
  select _schedule.name, _schedule.namespace, d.nominal_at, _now, d.decision, d.task_id from (
    select t.nominal_at, 'fired' as decision, t.task_id from unnest(_fire, _task_ids) t(nominal_at, task_id)
    union
    select t, case when t = any (_wanted) then 'overlapped' else 'missed' end, null
    from unnest(_schedule.next_at || _times) t where t <> all (_fire)) d
  order by d.nominal_at
  on conflict do nothing
  returning f.nominal_at, f.decision, f.task_id;
end
$$;

comment on function queues.fire_schedule(text, text, bigint, timestamptz[], timestamptz) is
  'Decides on the due times of a schedule, enqueues their tasks and sets the next time, in one step.';
