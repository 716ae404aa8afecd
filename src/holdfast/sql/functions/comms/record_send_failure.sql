-- Error-handler of a message: records the failure with the time of the next attempt, and nudges the supervisor.
-- Repeating it changes nothing.
-- Internal; comms.record_email_failure and comms.record_sms_failure are for holdfast_worker. Locks: the row of
-- comms.send_task, then the ready row of the supervisor.
create or replace function comms.record_send_failure(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _name constant text := 'send_' || channel || '_task';
  _original constant jsonb := payload -> 'original_payload';
  _error constant jsonb := payload -> 'error';
  _now constant timestamptz := queues.clock();
  _id constant bigint := (comms.lock_send(channel, _original)).send_task_id;
  _facts constant comms.send_facts := comms.read_facts(_id);
  _attempt constant integer := comms.attempt_of(_original, _facts.scheduled);
  _unknown constant boolean := coalesce(_error -> 'outcome_unknown' = 'true', false);
  _key_seconds numeric;
  _pause numeric;
begin
  if _attempt is null then
    return jsonb_build_object('success', false, 'validation_failure_message', format('there is no attempt %s of %s %s',
      coalesce(_original ->> 'attempt', 'null'), _name, coalesce(_original ->> (_name || '_id'), 'null')));
  elsif comms.attempt_result(_id, _attempt) = 'succeeded' then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('attempt %s of %s %s is recorded as succeeded', _attempt, _name, _id));
  end if;
  if _unknown and jsonb_typeof(_error -> 'key_seconds') = 'number' then
    _key_seconds := least(366 * 86400, greatest(0, (_error ->> 'key_seconds')::numeric));
  end if;
  if jsonb_typeof(_error -> 'retry_after') = 'number' then
    _pause := least(31 * 86400, (_error ->> 'retry_after')::numeric);
  end if;
  insert into comms.send_task_failed (
    send_task_id, attempt, failed_at, kind, message, permanent, outcome_unknown, repeatable_until, retry_at, detail)
  values (_id, _attempt, _now, coalesce(_error ->> 'kind', 'unknown'), coalesce(_error ->> 'message', 'no message'),
    coalesce(_error -> 'permanent' = 'true', false), _unknown,
    -- The key of a send may have been used since its first attempt was scheduled.
    _facts.first_scheduled_at + interval '1 second' * _key_seconds,
    -- Stored, so that the random part of the back-off is chosen once.
    _now + greatest(queues.backoff(_attempt), interval '1 second' * _pause), _error)
  on conflict on constraint one_failure_per_attempt do nothing;
  if found then
    perform queues.nudge(_facts.next_task_id);
  end if;
  return jsonb_build_object('success', true);
end
$$;

comment on function comms.record_send_failure(text, jsonb) is
  'Error-handler of a message: records the failure with the time of the next attempt, and nudges the supervisor.';

create or replace function comms.record_email_failure(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_failure('email', payload) $$;
comment on function comms.record_email_failure(jsonb) is
  'Error-handler of an e-mail: records the failure with the time of the next attempt, and nudges the supervisor.';

create or replace function comms.record_sms_failure(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_failure('sms', payload) $$;
comment on function comms.record_sms_failure(jsonb) is
  'Error-handler of a text message: records the failure with the time of the next attempt, and nudges the supervisor.';
