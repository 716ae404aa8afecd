-- Starts to send a message in the caller's transaction, and returns the id of the send. The message must exist in the
-- caller's namespace and not be erased. Writes the root of the process, and enqueues its supervisor for the time of the
-- send.
-- Internal; comms.kickoff_send_email_task and comms.kickoff_send_sms_task are for holdfast_client, with its own
-- messages, and holdfast_process. Locks: the content of the message, shared, so that it cannot be erased meanwhile.
create or replace function comms.kickoff_send(
  channel text, message_id bigint, scheduled_at timestamptz, max_attempts integer, when_unknown text,
  retry_for interval)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _now constant timestamptz := queues.clock();
  _id bigint;
begin
  if max_attempts is null or max_attempts not between 1 and 20 then
    raise exception using errcode = 'QF400', message = 'max_attempts must be between 1 and 20';
  elsif when_unknown is null or when_unknown not in ('retry', 'stop') then
    raise exception using errcode = 'QF400',
      message = format('when_unknown %s is neither retry nor stop', coalesce(to_json(when_unknown)::text, 'null'));
  elsif retry_for is null or retry_for not between interval '0' and interval '31 days' then
    raise exception using errcode = 'QF400', message = 'retry_for must be between 0 and 31 days';
  end if;
  if scheduled_at is not null then
    perform queues.parse_time('scheduled_at', to_jsonb(scheduled_at) #>> '{}', _now);
  end if;
  scheduled_at := coalesce(scheduled_at, _now);
  perform from comms.message m join comms.message_content c on c.message_id = m.message_id
  where m.message_id = kickoff_send.message_id and m.channel = kickoff_send.channel
    and (m.namespace = queues.namespace() or queues.has_role('worker')
      or queues.has_role('operator'))
  for key share of c;
  if not found then
    raise exception using errcode = 'QF404',
      message = format('there is no %s message %s', channel, coalesce(message_id::text, 'null')),
      hint = format('Create one with comms.create_%s_message. It may belong to another namespace.', channel);
  end if;
  insert into comms.send_task (
    channel, message_id, created_at, created_by, namespace, scheduled_at, max_attempts, retry_for,
    when_unknown, send_key)
  values (channel, message_id, _now, session_user, queues.namespace(), scheduled_at, max_attempts, retry_for,
    when_unknown, gen_random_uuid())
  returning send_task_id into _id;
  perform queues.note_supervision(
    'comms.send_' || channel, _id, comms.enqueue_supervisor(channel, _id, scheduled_at), scheduled_at);
  return _id;
end
$$;

comment on function comms.kickoff_send(text, bigint, timestamptz, integer, text, interval) is
  'Starts to send a message in the caller''s transaction, and returns the id of the send.';

create or replace function comms.kickoff_send_email_task(
  message_id bigint,
  scheduled_at timestamptz default null,
  max_attempts integer default 10,
  when_unknown text default 'retry',
  retry_for interval default '2 days')
returns bigint language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.kickoff_send('email', message_id, scheduled_at, max_attempts, when_unknown, retry_for) $$;
comment on function comms.kickoff_send_email_task(bigint, timestamptz, integer, text, interval) is
  'Starts to send an e-mail in the caller''s transaction, and returns the id of the send.';

create or replace function comms.kickoff_send_sms_task(
  message_id bigint,
  scheduled_at timestamptz default null,
  max_attempts integer default 10,
  when_unknown text default 'retry',
  retry_for interval default '2 days')
returns bigint language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.kickoff_send('sms', message_id, scheduled_at, max_attempts, when_unknown, retry_for) $$;
comment on function comms.kickoff_send_sms_task(bigint, timestamptz, integer, text, interval) is
  'Starts to send a text message in the caller''s transaction, and returns the id of the send.';
