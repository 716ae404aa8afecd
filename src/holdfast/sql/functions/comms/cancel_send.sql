-- Cancels a send that has not ended, and returns how it ended: cancelled, or its earlier end. Makes no further
-- attempts, and its supervisor does nothing more. A message that a provider has already accepted cannot be taken back;
-- a later report of the provider is recorded.
-- Internal; comms.cancel_send_email_task and comms.cancel_send_sms_task are for holdfast_client (sends of its
-- namespace) and holdfast_operator. Locks: the row of comms.send_task, then the ready row of the supervisor.
create or replace function comms.cancel_send(channel text, send_task_id bigint, reason text)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _durable constant text := queues.commit_to_disk();
  _name constant text := 'send_' || channel || '_task';
  _reason constant text := format('cancelled by %s', queues.actor()) || coalesce(': ' || left(reason, 2000), '');
  _id bigint;
  _facts comms.send_facts;
begin
  -- Whose it is never changes, so it is checked before a row of somebody else could be locked.
  if (select s.namespace = queues.namespace() or queues.has_role('operator') from comms.send_task s
    where s.send_task_id = cancel_send.send_task_id)
  then
    _id := (comms.lock_send(channel, jsonb_build_object(_name || '_id', send_task_id))).send_task_id;
  end if;
  if _id is null then
    raise exception using errcode = 'QF404',
      message = format('there is no %s %s', _name, coalesce(send_task_id::text, 'null')),
      hint = 'It may belong to another namespace.';
  end if;
  _facts := comms.read_facts(_id);
  if _facts.has_ended then
    return (select s.decision from comms.send_task_supervised s
      where s.send_task_id = _id and s.next_task_id is null);
  end if;
  insert into comms.send_task_supervised (send_task_id, run, supervised_at, decision, reason)
  values (_id, _facts.runs + 1, queues.clock(), 'cancelled', _reason);
  perform queues.nudge(_facts.next_task_id);
  perform queues.note_supervision('comms.send_' || channel, _id, null, decision => 'cancelled', reason => _reason);
  return 'cancelled';
end
$$;

comment on function comms.cancel_send(text, bigint, text) is
  'Cancels a send that has not ended, and returns how it ended: cancelled, or its earlier end.';

create or replace function comms.cancel_send_email_task(send_email_task_id bigint, reason text default null)
returns text language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.cancel_send('email', send_email_task_id, reason) $$;
comment on function comms.cancel_send_email_task(bigint, text) is
  'Cancels a send of an e-mail that has not ended, and returns how it ended: cancelled, or its earlier end.';

create or replace function comms.cancel_send_sms_task(send_sms_task_id bigint, reason text default null)
returns text language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.cancel_send('sms', send_sms_task_id, reason) $$;
comment on function comms.cancel_send_sms_task(bigint, text) is
  'Cancels a send of a text message that has not ended, and returns how it ended: cancelled, or its earlier end.';
