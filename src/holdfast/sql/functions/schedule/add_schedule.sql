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

comment on function queues.add_schedule(
  text, text, jsonb, text, interval, text, timestamptz, text, integer, interval, text, text, integer, integer, interval,
  interval, text, jsonb, text, interval) is
  'Adds a schedule that no application declares; a task is enqueued at each of its times.';
