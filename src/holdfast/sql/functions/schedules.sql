-- Schedules: tasks that are enqueued at given times. The leader computes the times, since the calendar is in Python;
-- the database decides on them.
-- Invariant: a nominal time is decided once, by the key of queues.schedule_firing. A decision counts only for the
-- version of the schedule that it was made for, and each decision and each change of the schedule raises the version. A
-- schedule enqueues with the authority that its creator had, never with that of the worker that fires it. Schedules
-- exist on the first shard only.
-- Lock order: the schedule, before everything that enqueueing locks; declare_schedules takes several by name. Functions
-- that change a schedule wait for it; decide_schedules skips it.
-- At the same time: two leaders may decide on the same schedule. The slower one finds the row locked or the version
-- raised, and does nothing. A schedule that is changed, paused or removed between the look and the decision is not
-- found with that version, either. An error of one schedule is recorded with it, and the others still fire.
-- Explained in docs/design/recovery.md.

-- Adds a schedule that no application declares; a task is enqueued at each of its times. Returns added, or unchanged if
-- it already exists; refused if the name has another definition.
-- For holdfast_client and holdfast_process. Locks: the schedule.
create or replace function queues.add_schedule(
  name text,
  type text,
  payload jsonb default '{}',
  cron text default null,
  every interval default null,
  tz text default null,
  anchor timestamptz default null,
  catch_up text default 'latest',
  catch_up_limit integer default 10,
  jitter interval default null,
  overlap text default 'allow',
  queue text default null,
  priority integer default null,
  max_attempts integer default null,
  timeout interval default null,
  lease interval default null,
  executor text default null,
  metadata jsonb default null,
  concurrency_key text default null,
  deadline interval default null)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _schedule jsonb;
begin
  if extract(year from every) <> 0 or extract(month from every) <> 0 then
    raise exception using errcode = 'QF400', message = format('every %s has no fixed length', to_json(every::text)),
      hint = 'Give days or less, or a cron expression: 0 0 1 * *';
  end if;
  _schedule := jsonb_strip_nulls(jsonb_build_object('name', name, 'cron', cron,
    'every', extract(epoch from every), 'tz', tz,
      'anchor', anchor, 'catch_up', catch_up, 'catch_up_limit', catch_up_limit, 'jitter', extract(epoch from jitter),
      'overlap', overlap))
    || jsonb_build_object('task', jsonb_build_object('type', type, 'payload', payload)
      || jsonb_strip_nulls(jsonb_build_object('queue', queue, 'priority', priority, 'max_attempts', max_attempts,
        'timeout', extract(epoch from timeout), 'lease', extract(epoch from lease), 'executor', executor,
        'concurrency_key', concurrency_key, 'deadline', extract(epoch from deadline)))
      || case when metadata is null then '{}' else jsonb_build_object('metadata', metadata) end);
  if has_function_privilege('queues.add_schedule_for_process(jsonb)'::regprocedure, 'execute') then
    return queues.add_schedule_for_process(_schedule);
  else
    return queues.add_schedule_for_client(_schedule);
  end if;
end
$$;

-- Adds a schedule for holdfast_process: every executor, including those with the rights of the database. As in
-- enqueue_for_process, the right to execute it is the authority.
-- Locks: the schedule.
create or replace function queues.add_schedule_for_process(schedule jsonb)
returns text
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select queues.insert_schedule(schedule, for_process => true) $$;

-- Adds a schedule for holdfast_client: only executors that act with the rights of the worker. As in enqueue_for_client,
-- the right to execute it is the authority.
-- Locks: the schedule.
create or replace function queues.add_schedule_for_client(schedule jsonb)
returns text
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select queues.insert_schedule(schedule, for_process => false) $$;

-- Adds one schedule, or raises an error.
-- Internal: called by add_schedule_for_client and add_schedule_for_process. Locks: the schedule.
create or replace function queues.insert_schedule(schedule jsonb, for_process boolean)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _verdict text;
begin
  if jsonb_typeof(schedule) is distinct from 'object' then
    raise exception using errcode = 'QF400', message = 'schedule must be an object';
  elsif not queues.is_first_shard() then
    raise exception using errcode = 'QF412',
      message = format('schedule %s cannot be added to shard %s: schedules are on the first shard',
        to_json(schedule ->> 'name'), (select s.shard_name from queues.shard s)),
      hint = 'Add it through a front, or on the first shard.';
  end if;
  perform queues.check_schedule(schedule, for_process, '', _now);
  _verdict := queues.upsert_schedule(schedule, null, for_process, _now);
  if _verdict = 'taken' then
    raise exception using errcode = 'QF409',
      message = format('schedule %s already exists with another definition', to_json(schedule ->> 'name')),
      hint = 'Use another name, or remove that one first.';
  elsif _verdict = 'added' then
    perform queues.check_schedules(queues.namespace());
  end if;
  return _verdict;
end
$$;

-- Refuses an invalid schedule with an error that names the field. Cron expressions and zones are checked by the worker,
-- which reads them.
create or replace function queues.check_schedule(schedule jsonb, for_process boolean, place text, now timestamptz)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  _odd text;
  _task jsonb;
  _anchor text;
begin
  select k into _odd from jsonb_object_keys(schedule) k
  where k <> all (array['name', 'task', 'cron', 'every', 'anchor', 'tz', 'catch_up', 'catch_up_limit', 'jitter',
    'overlap']) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s is unknown', place, to_json(_odd)),
      hint = 'Allowed: name, task, cron, every, anchor, tz, catch_up, catch_up_limit, jitter, overlap.';
  end if;
  perform queues.check_name('name', schedule ->> 'name', place);
  if (schedule ->> 'cron' is null) = (schedule ->> 'every' is null) then
    raise exception using errcode = 'QF400', message = format('%sgive cron or every, and not both', place);
  end if;

  if schedule ->> 'cron' is null then
    perform queues.parse_duration('every', schedule ->> 'every', interval '1 second', interval '3650 days', place);
    _anchor := schedule ->> 'anchor';
    if _anchor is not null then
      perform queues.parse_time('anchor', _anchor, now, place);
    end if;
  elsif octet_length(schedule ->> 'cron') > 200
    or schedule ->> 'cron' !~ '^(@[a-z]+|[A-Za-z0-9*,/#-]+( +[A-Za-z0-9*,/#-]+){4})$'
  then
    raise exception using errcode = 'QF400',
      message = format('%scron %s does not have five fields', place, to_json(schedule ->> 'cron')),
      hint = 'Write minute, hour, day of the month, month, day of the week: 0 9 * * mon-fri';
  elsif coalesce(schedule ->> 'tz', 'UTC') !~ '^[A-Za-z0-9_+/-]{1,100}$' then
    raise exception using errcode = 'QF400',
      message = format('%stz %s is not the name of a time zone', place, to_json(schedule ->> 'tz')),
      hint = 'Write it as Europe/Berlin.';
  end if;

  if coalesce(schedule ->> 'catch_up', 'latest') not in ('skip', 'latest', 'all') then
    raise exception using errcode = 'QF400',
      message = format('%scatch_up %s is not one of skip, latest, all', place, to_json(schedule ->> 'catch_up'));
  elsif coalesce(schedule ->> 'overlap', 'allow') not in ('allow', 'skip') then
    raise exception using errcode = 'QF400',
      message = format('%soverlap %s is not one of allow, skip', place, to_json(schedule ->> 'overlap'));
  elsif coalesce(schedule ->> 'catch_up_limit', '10') !~ '^0*([1-9][0-9]{0,2}|1000)$' then
    raise exception using errcode = 'QF400',
      message = format('%scatch_up_limit %s is not a whole number between 1 and 1000', place,
        to_json(schedule ->> 'catch_up_limit'));
  elsif schedule ->> 'jitter' is not null then
    perform queues.parse_duration('jitter', schedule ->> 'jitter', interval '0', interval '1 day', place);
  end if;

  if jsonb_typeof(schedule -> 'task') is distinct from 'object' then
    raise exception using errcode = 'QF400', message = format('%stask must be an object', place);
  elsif schedule -> 'task' ?| array['run_at', 'idempotency_key'] then
    raise exception using errcode = 'QF400',
      message = format('%stask must have neither run_at nor idempotency_key', place),
      hint = 'The schedule defines when it runs, and creates one task for each of its times.';
  end if;
  _task := schedule -> 'task';
  if coalesce(jsonb_typeof(_task -> 'metadata'), 'null') in ('object', 'null') then
    _task := queues.scheduled_task(_task, schedule ->> 'name', now, now);
  end if;
  perform queues.check_task(_task, t.type, t.queue, t.executor, t.priority, t.run_at, t.max_attempts, t.timeout,
    t.lease, null, coalesce(t.payload, '{}'), t.metadata, t.concurrency_key, for_process, place || 'task.', now)
  from jsonb_to_record(_task) as t(type text, queue text, executor text, priority text, run_at text,
    max_attempts text, timeout text, lease text, payload jsonb, metadata jsonb, concurrency_key text);
end
$$;

-- Returns the task of one nominal time, as an element of enqueue_many. Its metadata contains the schedule and the time.
create or replace function queues.scheduled_task(task jsonb, schedule text, nominal_at timestamptz, run_at timestamptz)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select task || jsonb_build_object('run_at', run_at,
    'metadata', case jsonb_typeof(task -> 'metadata') when 'object' then task -> 'metadata' else '{}' end
      || jsonb_build_object('schedule', schedule, 'nominal_at', nominal_at))
$$;

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

-- Refuses more schedules than one namespace may have. Transactions that add schedules at the same time do not count
-- those of each other; what they add beyond the limit delays no other namespace, because namespaces take turns.
-- Internal: called after schedules were added.
create or replace function queues.check_schedules(namespace text)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _most constant bigint := (select s.value from queues.setting s where s.name = 'max_schedules');
begin
  if (select count(*) from (
    select from queues.schedule s where s.namespace = check_schedules.namespace limit _most + 1) made) > _most
  then
    raise exception using errcode = 'QF429',
      message = format('namespace %s would have more than %s schedules', to_json(namespace), _most),
      hint = 'Remove those that are not needed, also paused and orphaned ones (holdfast schedules remove NAME), let '
        'one schedule enqueue several tasks, or raise max_schedules in queues.setting.';
  end if;
end
$$;

-- Decides on a batch of schedules that queues.due_schedules has listed, in its order. An element is {name, namespace,
-- version, next_at} with times, the newest due times, to fire it; without times, to plan its next time; with a problem
-- that keeps it from firing. next_at may be infinity. Returns the decisions on due times, and a row with a problem for
-- each schedule that cannot fire: the others still do. A schedule whose version is outdated, or whose row another
-- session holds, is skipped. So are the further schedules of a namespace once the call has taken 200 milliseconds; the
-- first one of each namespace is always decided. What was skipped is listed again.
-- For holdfast_worker. Locks: schedules, without waiting.
create or replace function queues.decide_schedules(decisions jsonb)
returns table (name text, namespace text, nominal_at timestamptz, decision text, task_id uuid, problem text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('decisions', decisions);
  _durable constant text := queues.commit_to_disk();
  _until constant timestamptz := queues.clock() + interval '200 milliseconds';
  _one record;
  _served text[] := '{}';
  _problem text;
  _hint text;
begin
  for _one in
    select e.name, e.namespace, e.version, e.times, e.next_at, e.problem
    from jsonb_array_elements(decisions) with ordinality a(element, n)
    cross join lateral jsonb_to_record(a.element)
      as e(name text, namespace text, version bigint, times timestamptz[], next_at timestamptz, problem text)
    order by a.n
  loop
    continue when _one.namespace = any (_served) and queues.clock() > _until;
    _served := _served || _one.namespace;
    _problem := _one.problem;
    if _one.times is not null then
      begin
        return query
        select _one.name, _one.namespace, f.nominal_at, f.decision, f.task_id, null::text
        from queues.fire_schedule(_one.name, _one.namespace, _one.version, _one.times, _one.next_at) f;
        continue;
      exception
        -- The state of the server, not the schedule.
        when insufficient_resources or system_error or internal_error or transaction_rollback or lock_not_available
        then
          raise;
        when others then
          get stacked diagnostics _problem = message_text, _hint = pg_exception_hint;
          _problem := rtrim(_problem, '.') || coalesce('. ' || nullif(_hint, ''), '');
      end;
    end if;
    if queues.plan_schedule(_one.name, _one.namespace, _one.version, _one.next_at, _problem) and _problem is not null
    then
      return query select _one.name, _one.namespace, null::timestamptz, null::text, null::uuid, _problem;
    end if;
  end loop;
end
$$;

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

-- Returns whether a schedule can have this time. With every, a multiple of the interval from its anchor; with cron, a
-- whole minute, because the worker reads expressions and zones. A worker thus cannot fire a schedule more often than
-- that.
create or replace function queues.is_schedule_time(schedule queues.schedule, at timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when not isfinite(at) then at = 'infinity'
    when (schedule).every is null then mod(extract(epoch from at), 60) = 0
    else mod(extract(epoch from at - (schedule).anchor), extract(epoch from (schedule).every)) = 0 end
$$;

-- Enqueues the tasks of nominal times with the rights, login and namespace of the schedule, and returns their ids.
create or replace function queues.enqueue_scheduled(schedule queues.schedule, nominal_times timestamptz[],
  now timestamptz)
returns uuid[]
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select array_agg(i.task_id order by i.n)
  from queues.insert_tasks((
      select jsonb_agg(queues.scheduled_task((schedule).task, (schedule).name, t.nominal_at,
        greatest(now, t.nominal_at) + random() * (schedule).jitter) order by t.nominal_at)
      from unnest(nominal_times) t(nominal_at)),
    (schedule).for_process, (schedule).created_by, (schedule).namespace) with ordinality i(task_id, created, n)
$$;

-- Stores a schedule's next time, which may be infinity, or a problem that keeps it from firing. A time that was due is
-- then recorded as missed. Returns whether the schedule needed it: false for an outdated version, and for what
-- queues.due_schedules does not list. Refuses a time that is not later or that the schedule cannot have.
-- Internal: called by decide_schedules. Locks: the schedule, without waiting.
create or replace function queues.plan_schedule(
  name text, namespace text, version bigint, next_at timestamptz, problem text default null)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _grace constant interval := '1 minute';
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
  _after timestamptz;
begin
  select s.* into _schedule from queues.schedule s
  where s.name = plan_schedule.name and s.namespace = plan_schedule.namespace and s.version = plan_schedule.version
    and s.paused_at is null and s.orphaned_at is null
  for update skip locked;
  if not found then
    return false;
  end if;
  -- After the clock was set back, the leader counts from the time of its query.
  _after := case when _schedule.decided_at > _now then _now - _grace
    when _schedule.next_at is null then _schedule.plan_after
    when plan_schedule.problem is not null and _schedule.next_at <= _now then _schedule.next_at end;
  if _after is null then
    return false;
  elsif plan_schedule.next_at is null or plan_schedule.next_at <= _after
    or not queues.is_schedule_time(_schedule, plan_schedule.next_at)
  then
    raise exception using errcode = 'QF400',
      message = format('next_at must be infinity, or a time of schedule %s after %s', to_json(name), _after);
  end if;
  if plan_schedule.problem is not null and _schedule.next_at <= _now then
    insert into queues.schedule_firing (schedule, namespace, nominal_at, decided_at, decision)
    values (_schedule.name, _schedule.namespace, _schedule.next_at, _now, 'missed') on conflict do nothing;
  end if;
  update queues.schedule s
  set version = s.version + 1, next_at = plan_schedule.next_at, decided_at = _now,
    problem = left(plan_schedule.problem, 2000)
  where s.name = _schedule.name and s.namespace = _schedule.namespace;
  return true;
end
$$;

-- Declares all schedules of an application in the caller's namespace, and returns the result for each. The result is
-- added, changed, unchanged, or taken if the name belongs to another application of the namespace or was added by hand.
-- Schedules exist once, on the first shard: on another one the result is elsewhere, and what the application had
-- declared there is removed. Schedules that are no longer declared become orphaned: they stay visible and do not fire.
-- Repeated calls change nothing. Only executors that act with the rights of the worker are allowed.
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

-- Returns the schedules to decide on now, with queues.decide_schedules. Namespaces take turns, beginning with the one
-- that has waited longest for a decision; each has its longest due schedule decided first. If plan_from is given, the
-- next time after it is needed; otherwise the times from next_at up to now are due, the newest max_times of them. None
-- on a shard other than the first: a schedule fires once, not once per shard.
-- For holdfast_worker. Locks: none.
create or replace function queues.due_schedules(max_schedules integer default 100)
returns table (name text, namespace text, version bigint, cron text, every interval, anchor timestamptz, tz text,
  plan_from timestamptz, next_at timestamptz, max_times integer, now timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  perform queues.check_number('max_schedules', max_schedules, 1, 10000);
  if not queues.is_first_shard() then
    return;
  end if;
  -- A time decided later than now was decided before the clock was set back: unchanged, it might delay the schedule for
  -- as long.
  return query
  select (d.s).name, (d.s).namespace, (d.s).version, (d.s).cron, (d.s).every, (d.s).anchor, (d.s).tz,
    case when (d.s).decided_at > _now then _now when (d.s).next_at is null then (d.s).plan_after end,
    nullif((d.s).next_at, 'infinity'), case (d.s).catch_up when 'all' then (d.s).catch_up_limit else 1 end, _now
  from queues.namespaces_with_schedules() o(namespace)
  cross join lateral (
    select max(t.decided_at) as at from queues.schedule t where t.namespace = o.namespace) last_decision
  cross join lateral (
    select c.s, row_number() over (order by coalesce((c.s).next_at, (c.s).plan_after), (c.s).name) as turn from (
      (select t as s from queues.schedule t
      where t.paused_at is null and t.orphaned_at is null and t.namespace = o.namespace and t.next_at is null
      limit max_schedules)
      union all
      (select t from queues.schedule t
      where t.paused_at is null and t.orphaned_at is null and t.namespace = o.namespace and t.next_at <= _now
      order by t.next_at limit max_schedules)
      union all
      (select t from queues.schedule t
      where t.paused_at is null and t.orphaned_at is null and t.namespace = o.namespace and t.decided_at > _now
        and t.next_at > _now
      limit max_schedules)) c
    order by turn limit max_schedules) d
  order by d.turn, last_decision.at, (d.s).namespace limit max_schedules;
end
$$;

-- Returns the namespaces that have schedules which may fire. Reads one index entry per namespace, however many
-- schedules it has.
create or replace function queues.namespaces_with_schedules()
returns setof text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive owner(namespace) as (
    (select s.namespace from queues.schedule s where s.paused_at is null and s.orphaned_at is null
    order by s.namespace limit 1)
    union all
    select (
      select s.namespace from queues.schedule s
      where s.paused_at is null and s.orphaned_at is null and s.namespace > o.namespace
      order by s.namespace limit 1)
    from owner o where o.namespace is not null)
  select o.namespace from owner o where o.namespace is not null
$$;

-- Returns how long until a schedule must be decided on: zero or less if one is due, null if there is none.
-- For holdfast_worker. Locks: none.
create or replace function queues.next_firing()
returns interval
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  _now constant timestamptz := queues.clock();
  _next timestamptz;
begin
  if exists (select from queues.due_schedules(1)) then
    return interval '0';
  end if;
  if not queues.is_first_shard() then
    return null;
  end if;
  select min(f.next_at) into _next from queues.namespaces_with_schedules() o(namespace)
  cross join lateral (
    select s.next_at from queues.schedule s
    where s.paused_at is null and s.orphaned_at is null and s.namespace = o.namespace and s.next_at > _now
    order by s.next_at limit 1) f;
  return case when isfinite(_next) then _next - _now end;
end
$$;

-- Stops a schedule from firing until it is resumed, and returns whether it was active.
-- For holdfast_client (schedules of its namespace) and holdfast_operator. Locks: the schedule.
create or replace function queues.pause_schedule(name text, reason text default null, namespace text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
begin
  reason := left(reason, 2000);
  _schedule := queues.lock_own_schedule(name, namespace);
  if _schedule.paused_at is not null then
    return false;
  end if;
  update queues.schedule s
  set version = s.version + 1, paused_at = _now, paused_by = queues.actor(), pause_reason = pause_schedule.reason
  where s.name = _schedule.name and s.namespace = _schedule.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
  values (name, _schedule.namespace, 'paused', _now, queues.actor(), reason);
  return true;
end
$$;

-- Locks a schedule and returns it; refuses one that does not exist or that the session may not change. Both give the
-- same error. A client may change the schedules of its namespace; an operator may change all, and must name the
-- namespace if the name is ambiguous.
-- Internal. Locks: the schedule.
create or replace function queues.lock_own_schedule(name text, namespace text)
returns queues.schedule
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _namespaces constant text[] := array(
    select s.namespace from queues.schedule s
    where s.name = lock_own_schedule.name
      and (lock_own_schedule.namespace is null or s.namespace = lock_own_schedule.namespace)
      and (s.namespace = queues.namespace() or queues.has_role('operator'))
    order by s.namespace);
  _found queues.schedule;
begin
  if cardinality(_namespaces) > 1 then
    raise exception using errcode = 'QF400',
      message = format('schedule %s exists in %s namespaces: %s', to_json(name), cardinality(_namespaces),
        array_to_string(_namespaces, ', ')),
      hint = 'Name the namespace: namespace => ''…'', or --namespace.';
  end if;
  select s.* into _found from queues.schedule s where s.name = lock_own_schedule.name
    and s.namespace = _namespaces[1] for update;
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no schedule %s', coalesce(to_json(name)::text, 'null'))
        || coalesce(' in namespace ' || to_json(namespace)::text, ''),
      hint = 'Look for it with queues.schedule_status; it may belong to another namespace.';
  end if;
  return _found;
end
$$;

-- Deletes up to max_firings decisions of schedules older than a week, and returns how many. A schedule's last firing is
-- also in its own row.
-- For holdfast_worker. Locks: firings, without waiting.
create or replace function queues.prune_firings(max_firings integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _before constant timestamptz := queues.clock() - interval '7 days';
  _removed integer;
begin
  perform queues.check_number('max_firings', max_firings, 1, 10000);
  perform set_config('holdfast.retention', 'on', true);
  with old as materialized (
    select f.schedule, f.namespace, f.nominal_at from queues.schedule_firing f
    where f.decided_at < _before order by f.decided_at limit max_firings for update skip locked)
  delete from queues.schedule_firing f using old where f.schedule = old.schedule and f.namespace = old.namespace
    and f.nominal_at = old.nominal_at;
  get diagnostics _removed = row_count;
  perform set_config('holdfast.retention', _retention, true);
  return _removed;
end
$$;

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

-- Lets a paused schedule fire again from now on, and returns whether it was paused. Times during the pause are not
-- caught up.
-- For holdfast_client (schedules of its namespace) and holdfast_operator. Locks: the schedule.
create or replace function queues.resume_schedule(name text, reason text default null, namespace text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
begin
  reason := left(reason, 2000);
  _schedule := queues.lock_own_schedule(name, namespace);
  if _schedule.paused_at is null then
    return false;
  end if;
  update queues.schedule s
  set version = s.version + 1, paused_at = null, paused_by = null, pause_reason = null, next_at = null,
    plan_after = _now, decided_at = _now
  where s.name = _schedule.name and s.namespace = _schedule.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
  values (name, _schedule.namespace, 'resumed', _now, queues.actor(), reason);
  return true;
end
$$;

-- Enqueues a schedule's task now, in addition to its times, and returns its id. It runs even if the schedule is paused,
-- orphaned or overlapping.
-- For holdfast_client (its own schedules) and holdfast_operator. Locks: the schedule.
create or replace function queues.run_schedule(name text, reason text default null, namespace text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _schedule queues.schedule;
  _task_id uuid;
begin
  _schedule := queues.lock_own_schedule(name, namespace);
  _schedule.jitter := '0';
  _task_id := (queues.enqueue_scheduled(_schedule, array[_now], _now))[1];
  insert into queues.schedule_firing (schedule, namespace, nominal_at, decided_at, decision, task_id)
  values (name, _schedule.namespace, _now, _now, 'forced', _task_id);
  update queues.schedule s set last_task_id = _task_id where s.name = _schedule.name
    and s.namespace = _schedule.namespace;
  insert into queues.schedule_act (schedule, namespace, act, occurred_at, actor, reason)
  values (name, _schedule.namespace, 'forced', _now, queues.actor(), left(reason, 2000));
  return _task_id;
end
$$;
