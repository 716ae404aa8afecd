-- Takes a message from its kickoff to its end: reads the facts, decides, writes. Schedules an attempt if none is
-- outstanding, and runs again until the send has ended.
-- Internal; comms.send_email_supervisor and comms.send_sms_supervisor are for holdfast_worker. Locks: the row of
-- comms.send_task.
create or replace function comms.supervise_send(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _usual_time constant interval := '20 seconds';
  _now constant timestamptz := queues.clock();
  _name constant text := 'send_' || channel || '_task';
  -- Read.
  _send constant comms.send_task := comms.lock_send(channel, payload);
  _id constant bigint := _send.send_task_id;
  _facts constant comms.send_facts := comms.read_facts(_id);
  _run constant integer := _facts.runs + 1;
  _decided record;
  _attempt_at timestamptz := _facts.last_attempt_at;
  _next_run_at timestamptz;
  _next_task_id uuid;
begin
  if _id is null then
    return jsonb_build_object('success', false, 'validation_failure_message',
      format('there is no %s %s', _name, coalesce(payload ->> (_name || '_id'), 'null')));
  elsif _facts.has_ended or payload ->> 'run' <> _run::text then
    return jsonb_build_object('success', true, 'payload', jsonb_build_object('decision', 'none',
      'reason', format('%s %s has ended, or another run has taken the place of this one', _name, _id)));
  end if;
  -- Think.
  _decided := comms.decide_send(_send, _facts, _now);

  -- Write.
  if _decided.decision = 'attempt' then
    _attempt_at := _decided.attempt_at;
    insert into comms.send_task_scheduled (send_task_id, attempt, scheduled_at, run_at, task_id)
    values (_id, _facts.scheduled + 1, _now, _attempt_at, queues.enqueue(
      'comms.send_' || channel, run_at => _attempt_at, max_attempts => 5, timeout => '1 minute',
      payload => jsonb_build_object(
        'task_type', channel, _name || '_id', _id, 'attempt', _facts.scheduled + 1,
        'before_handler', format('comms.get_%s_payload', channel),
        'success_handler', format('comms.record_%s_success', channel),
        'error_handler', format('comms.record_%s_failure', channel))));
  end if;
  if _decided.decision not in ('succeeded', 'failed', 'gave_up') then
    _next_run_at := case _decided.decision when 'sleep' then _send.scheduled_at
      else queues.next_check(
        case when _attempt_at > _now then _attempt_at + _usual_time / 2 end, _attempt_at + _usual_time) end;
    _next_task_id := comms.enqueue_supervisor(channel, _id, _next_run_at, _run + 1);
  end if;
  insert into comms.send_task_supervised (
    send_task_id, run, supervised_at, decision, reason, next_run_at, next_task_id)
  values (_id, _run, _now, _decided.decision, _decided.reason, _next_run_at, _next_task_id);
  perform queues.note_supervision(
    'comms.send_' || channel, _id, _next_task_id, _next_run_at, _decided.decision, _decided.reason);
  return jsonb_build_object('success', true, 'payload', jsonb_build_object(
    'run', _run, 'decision', _decided.decision, 'reason', _decided.reason, 'next_run_at', _next_run_at)
    || case _decided.decision when 'attempt' then jsonb_build_object('attempt_at', _attempt_at) else '{}' end);
end
$$;

comment on function comms.supervise_send(text, jsonb) is
  'Takes a message from its kickoff to its end: reads the facts, decides, writes.';

create or replace function comms.send_email_supervisor(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.supervise_send('email', payload) $$;
comment on function comms.send_email_supervisor(jsonb) is
  'Takes an e-mail from its kickoff to its end: reads the facts, decides, writes.';

create or replace function comms.send_sms_supervisor(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.supervise_send('sms', payload) $$;
comment on function comms.send_sms_supervisor(jsonb) is
  'Takes a text message from its kickoff to its end: reads the facts, decides, writes.';
