-- Success-handler of a message: records the success and nudges the supervisor. Repeating it changes nothing.
-- Internal; comms.record_email_success and comms.record_sms_success are for holdfast_worker. Locks: the row of
-- comms.send_task, then the ready row of the supervisor.
create or replace function comms.record_send_success(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _name constant text := 'send_' || channel || '_task';
  _original constant jsonb := payload -> 'original_payload';
  _id constant bigint := (comms.lock_send(channel, _original)).send_task_id;
  _facts constant comms.send_facts := comms.read_facts(_id);
  _attempt constant integer := comms.attempt_of(_original, _facts.scheduled);
  _sent constant jsonb := payload -> 'worker_payload';
begin
  if _attempt is null then
    return jsonb_build_object('success', false, 'validation_failure_message', format('there is no attempt %s of %s %s',
      coalesce(_original ->> 'attempt', 'null'), _name, coalesce(_original ->> (_name || '_id'), 'null')));
  elsif comms.attempt_result(_id, _attempt) = 'failed' then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('attempt %s of %s %s is recorded as failed', _attempt, _name, _id));
  end if;
  insert into comms.send_task_succeeded (send_task_id, attempt, succeeded_at, provider, provider_message_id, detail)
  values (_id, _attempt, queues.clock(), _sent ->> 'provider', _sent ->> 'message_id', _sent -> 'detail')
  on conflict on constraint one_success_per_send do nothing;
  perform queues.nudge(_facts.next_task_id);
  return jsonb_build_object('success', true);
end
$$;

comment on function comms.record_send_success(text, jsonb) is
  'Success-handler of a message: records the success and nudges the supervisor.';

create or replace function comms.record_email_success(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_success('email', payload) $$;
comment on function comms.record_email_success(jsonb) is
  'Success-handler of an e-mail: records the success and nudges the supervisor.';

create or replace function comms.record_sms_success(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.record_send_success('sms', payload) $$;
comment on function comms.record_sms_success(jsonb) is
  'Success-handler of a text message: records the success and nudges the supervisor.';
