-- Emits an event in the caller's transaction and returns its id, which is the same in every delivery. Events of one
-- aggregate reach a subscription in the order in which they were emitted, if their transactions followed one another;
-- other events may overtake. Types that begin with task., worker. or subscription. are reserved for the engine.
-- For holdfast_client and holdfast_worker. Locks: none.
create or replace function queues.emit(
  event_type text,
  payload jsonb default '{}',
  aggregate_id text default null,
  subject text default null,
  source text default null,
  traceparent text default null)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := queues.commit_to_disk();
  _event_id constant uuid := queues.new_task_id();
  _problem text;
begin
  perform queues.check_name('event_type', event_type);
  if split_part(event_type, '.', 1) in ('task', 'worker', 'subscription') then
    raise exception using errcode = 'QF403',
      message = format('event_type %s is reserved: only the engine emits task., worker. and subscription. events',
        to_json(event_type)),
      hint = 'Use another prefix, such as order.created.';
  end if;
  perform queues.check_attribute('aggregate_id', aggregate_id);
  perform queues.check_attribute('subject', subject);
  perform queues.check_attribute('source', source);
  if traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
    raise exception using errcode = 'QF400', message = format('traceparent %s is malformed', to_json(traceparent)),
      hint = 'Take it from the W3C trace context: 00-<32 hex digits>-<16 hex digits>-01';
  end if;
  if payload is null then
    raise exception using errcode = 'QF400', message = 'payload must not be null';
  end if;
  _problem := queues.document_problem(payload,
    (select s.value from queues.setting s where s.name = 'max_payload_bytes'));
  if _problem is not null then
    raise exception using message = format('payload %s', _problem),
      errcode = case when _problem like '% bytes%' then 'QF413' else 'QF422' end;
  end if;
  perform queues.record_events(
    array[row(_event_id, event_type, aggregate_id, subject, source, null, null, traceparent,
      payload, null)::queues.new_event],
    queues.clock(), keep => true);
  return _event_id;
end
$$;

comment on function queues.emit(text, jsonb, text, text, text, text) is
  'Emits an event in the caller''s transaction and returns its id, which is the same in every delivery.';
