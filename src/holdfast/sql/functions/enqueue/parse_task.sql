-- Turns one element of a batch into a new task, or refuses it with a message that names the element and the field.
-- Scalars arrive as text, so that a value that does not fit is refused here and not by a cast that cannot say which field it was.
create or replace function queues.parse_task(
  n integer, type text, queue text, executor text, priority text, run_at text, max_attempts text,
  timeout text, lease text, idempotency_key text, payload jsonb, metadata jsonb,
  for_process boolean, place text, now timestamptz, max_payload_bytes bigint)
returns queues.new_task
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _task queues.new_task;
  _problem text;
  _guarded boolean;
begin
  if type is null or octet_length(type) > 200 or type !~ '^[^\s[:cntrl:].:]+([.:][^\s[:cntrl:].:]+)*$' then
    perform queues.check_name('type', type, place);
  end if;
  if queue is null then
    queue := split_part(split_part(type, '.', 1), ':', 1);
  else
    perform queues.check_name('queue', queue, place);
  end if;

  if executor is null then
    -- A payload may name its own executor; a word that is none of ours is the application's business.
    select e.executor into executor from queues.executor e
    where jsonb_typeof(payload) = 'object' and e.executor = payload ->> 'task_type';
    executor := coalesce(executor, 'python');
  end if;
  select e.needs_process into _guarded from queues.executor e where e.executor = parse_task.executor;
  if _guarded is null then
    raise exception using errcode = 'QF400', message = format('%sexecutor %s is unknown', place, to_json(executor)),
      hint = (select 'Known are: ' || string_agg(e.executor, ', ' order by e.executor) from queues.executor e);
  elsif _guarded and not for_process then
    raise exception using errcode = 'QF403',
      message = format('%sexecutor %s may be used by members of holdfast_process only', place, executor),
      hint = 'Call a function of the business process that enqueues it, or grant holdfast_process to the owner of that function.';
  end if;

  if payload is null then
    payload := '{}';
  end if;
  _problem := queues.problem_with_document(payload, max_payload_bytes);
  if _problem is not null then
    raise exception using message = format('%spayload %s', place, _problem),
      errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end;
  end if;
  if metadata is not null then
    if jsonb_typeof(metadata) <> 'object' then
      raise exception using errcode = 'QF400', message = format('%smetadata must be an object', place);
    end if;
    _problem := queues.problem_with_document(metadata, 16384);
    if _problem is not null then
      raise exception using errcode = 'QF422', message = format('%smetadata %s', place, _problem);
    end if;
  end if;

  if priority is not null then
    if priority !~ '^[+-]?[0-9]{1,9}$' then
      raise exception using errcode = 'QF400',
        message = format('%spriority %s is not a whole number between -999999999 and 999999999', place, to_json(priority));
    end if;
    _task.priority := priority::integer;
  end if;
  if max_attempts is not null then
    if max_attempts !~ '^[0-9]{1,9}$' or max_attempts::integer not between 1 and 1000 then
      raise exception using errcode = 'QF400',
        message = format('%smax_attempts %s is not a whole number between 1 and 1000', place, to_json(max_attempts));
    end if;
    _task.max_attempts := max_attempts::integer;
  end if;
  if run_at is not null then
    _task.run_at := queues.parse_time('run_at', run_at, now, place);
  end if;
  if timeout is not null then
    _task.timeout := queues.parse_duration('timeout', timeout, interval '1 millisecond', interval '30 days', place);
  end if;
  if lease is not null then
    _task.lease := queues.parse_duration('lease', lease, interval '1 second', interval '1 day', place);
  end if;
  if idempotency_key is not null and (idempotency_key = '' or octet_length(idempotency_key) > 500) then
    raise exception using errcode = 'QF400',
      message = format('%sidempotency_key must be between 1 and 500 bytes long', place);
  end if;

  _task.n := n;
  _task.task_id := queues.new_task_id();
  _task.type := type;
  _task.queue := queue;
  _task.executor := executor;
  _task.priority := coalesce(_task.priority, 0);
  _task.run_at := coalesce(_task.run_at, now);
  _task.max_attempts := coalesce(_task.max_attempts, 3);
  _task.idempotency_key := idempotency_key;
  _task.spec_hash := queues.spec_hash(type, executor, payload);
  _task.payload := payload;
  _task.metadata := metadata;
  return _task;
end
$$;

comment on function queues.parse_task(
  integer, text, text, text, text, text, text, text, text, text, jsonb, jsonb, boolean, text, timestamptz, bigint) is
  'Turns one element of a batch into a new task, or refuses it with a message that names the element and the field.';
