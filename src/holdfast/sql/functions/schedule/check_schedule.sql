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

comment on function queues.check_schedule(jsonb, boolean, text, timestamptz) is
  'Refuses an invalid schedule with an error that names the field.';
