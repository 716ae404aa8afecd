-- Starts to send a text message in the caller's transaction, and returns the id of the send. Writes the root of the
-- process, and enqueues its supervisor for the time of the send.
-- For holdfast_client, with its own messages, and holdfast_process. Locks: the content of the message, shared.
create or replace function comms.kickoff_send_sms_task(
  message_id bigint,
  scheduled_at timestamptz default null,
  max_attempts integer default 10,
  when_unknown text default 'retry',
  retry_for interval default '2 days')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _now constant timestamptz := queues.clock();
  _id bigint;
begin
  perform comms.check_kickoff(message_id, 'sms', scheduled_at, max_attempts, when_unknown, retry_for);
  scheduled_at := coalesce(scheduled_at, _now);
  insert into comms.send_sms_task (message_id, created_at, created_by, namespace, scheduled_at, max_attempts, retry_for, when_unknown, send_key)
  values (message_id, _now, session_user, queues.namespace(), scheduled_at, max_attempts, retry_for, when_unknown, gen_random_uuid())
  returning send_sms_task_id into _id;
  perform queues.note_supervision('comms.send_sms', _id, queues.enqueue(
    'comms.send_sms_supervisor', run_at => scheduled_at, max_attempts => 25, payload => jsonb_build_object(
      'task_type', 'db_function', 'db_function', 'comms.send_sms_supervisor', 'send_sms_task_id', _id)), scheduled_at);
  return _id;
end
$$;

comment on function comms.kickoff_send_sms_task(bigint, timestamptz, integer, text, interval) is
  'Starts to send a text message in the caller''s transaction, and returns the id of the send.';
