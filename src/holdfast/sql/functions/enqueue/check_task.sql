-- Refuses an invalid element of a batch with an error that names the element and the field, else returns true. Scalars
-- arrive as text, so that an invalid value is refused here and not by a cast that cannot name the field. Only elements
-- that are not simple (is_simple_task, are_simple_options) are checked here.
create or replace function queues.check_task(
  element jsonb, type text, queue text, executor text, priority text, run_at text, max_attempts text,
  timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb, concurrency_key text,
  for_process boolean, place text, now timestamptz)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _options constant text[] := array['type', 'payload', 'queue', 'priority', 'run_at', 'idempotency_key', 'max_attempts',
    'timeout', 'lease', 'executor', 'metadata', 'concurrency_key', 'shard_key', 'deadline'];
  _needs_process boolean;
  _problem text;
  _odd text;
begin
  select k into _odd from jsonb_object_keys(element) k where k <> all (_options) limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s is unknown', place, to_json(_odd)),
      hint = format('Allowed: %s.', array_to_string(_options, ', '));
  end if;

  if element -> 'payload' = 'null' then
    raise exception using errcode = 'QF400', message = format('%spayload must not be null', place);
  end if;
  select k into _odd
  from unnest(array['type', 'queue', 'executor', 'idempotency_key', 'run_at', 'concurrency_key', 'shard_key']) k
  where jsonb_typeof(element -> k) not in ('string', 'null') limit 1;
  if found then
    raise exception using errcode = 'QF400', message = format('%s%s must be a string', place, _odd);
  end if;

  perform queues.check_name('type', type, place);
  if queue is not null then
    perform queues.check_name('queue', queue, place);
  end if;
  executor := queues.executor_for(executor, payload);
  select e.needs_process into _needs_process from queues.executor e where e.executor = check_task.executor;
  if not found then
    raise exception using errcode = 'QF400', message = format('%sexecutor %s is unknown', place, to_json(executor)),
      hint = (select 'Allowed: ' || string_agg(e.executor, ', ' order by e.executor) || '.' from queues.executor e);
  elsif _needs_process and not for_process then
    raise exception using errcode = 'QF403',
      message = format('%sexecutor %s may be used by members of holdfast_process only', place, executor),
      hint = 'Call a function of the business process that enqueues it; its owner has holdfast_process.';
  end if;

  _problem := queues.document_problem(payload,
    (select s.value from queues.setting s where s.name = 'max_payload_bytes'));
  if _problem is not null then
    raise exception using message = format('%spayload %s', place, _problem),
      errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end,
      hint = case when _problem like '% bytes%'
        then 'Store the data elsewhere and pass a reference to it, such as an id or a path. The limit is the setting '
          'max_payload_bytes.'
        else 'Pass the value in another form, such as text.' end;
  end if;
  if metadata is not null then
    if jsonb_typeof(metadata) <> 'object' then
      raise exception using errcode = 'QF400', message = format('%smetadata must be an object', place);
    end if;
    _problem := queues.document_problem(metadata, 16384);
    if _problem is not null then
      raise exception using message = format('%smetadata %s', place, _problem),
        errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end;
    end if;
  end if;

  -- The range is small, because a claim processes the priorities in use one by one.
  if priority !~ '^[+-]?[0-9]{1,9}$' or priority::integer not between -100 and 100 then
    raise exception using errcode = 'QF400',
      message = format('%spriority %s is not a whole number between -100 and 100', place, to_json(priority));
  end if;
  if max_attempts is not null and (max_attempts !~ '^[0-9]{1,9}$' or max_attempts::integer not between 1 and 1000) then
    raise exception using errcode = 'QF400',
      message = format('%smax_attempts %s is not a whole number between 1 and 1000', place, to_json(max_attempts));
  end if;
  if run_at is not null then
    perform queues.parse_time('run_at', run_at, now, place);
  end if;
  if timeout is not null then
    perform queues.parse_duration('timeout', timeout, interval '1 millisecond', interval '30 days', place);
  end if;
  if element ->> 'deadline' is not null then
    if _needs_process then
      raise exception using errcode = 'QF400',
        message = format('%sa task of the executor %s has no deadline', place, executor),
        hint = 'Its business process decides when it is too late.';
    end if;
    perform queues.parse_duration('deadline', element ->> 'deadline', interval '1 millisecond', interval '36500 days',
      place);
  end if;
  if lease is not null then
    perform queues.parse_duration('lease', lease, interval '1 second', interval '1 day', place);
  end if;
  if idempotency_key is not null and (idempotency_key = '' or octet_length(idempotency_key) > 500) then
    raise exception using errcode = 'QF400',
      message = format('%sidempotency_key must be between 1 and 500 bytes long', place);
  end if;
  if concurrency_key is not null and (concurrency_key = '' or octet_length(concurrency_key) > 200) then
    raise exception using errcode = 'QF400',
      message = format('%sconcurrency_key must be between 1 and 200 bytes long', place);
  end if;
  return true;
end
$$;

comment on function queues.check_task(
  jsonb, text, text, text, text, text, text, text, text, text, jsonb, jsonb, text, boolean, text, timestamptz) is
  'Refuses an invalid element of a batch with an error that names the element and the field, else returns true.';
