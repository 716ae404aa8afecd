-- Cancels a send of an e-mail that has not ended, and returns how it ended: cancelled, or its earlier end. Makes no
-- further attempts, and its supervisor does nothing more. A message that a provider has already accepted cannot be
-- taken back; a later report of the provider is recorded.
-- For holdfast_client (sends of its namespace) and holdfast_operator. Locks: the row of comms.send_email_task, then the
-- ready row of the supervisor.
create or replace function comms.cancel_send_email_task(send_email_task_id bigint, reason text default null)
returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _send constant comms.send_email_task := comms.lock_send_email_task(jsonb_build_object('send_email_task_id', send_email_task_id));
  _reason constant text := format('cancelled by %s', queues.actor()) || coalesce(': ' || left(reason, 2000), '');
  _waiting uuid;
  _ended text;
begin
  if _send.send_email_task_id is null
    or _send.namespace <> queues.namespace() and not pg_has_role(session_user, 'holdfast_operator', 'member')
  then
    raise exception using errcode = 'QF404', message = format('there is no send_email_task %s', coalesce(send_email_task_id::text, 'null')),
      hint = 'It may belong to another namespace.';
  end if;
  select s.decision into _ended from comms.send_email_task_supervised s
  where s.send_email_task_id = _send.send_email_task_id and s.next_task_id is null;
  if found then
    return _ended;
  end if;
  _waiting := comms.waiting_send_email_supervisor(_send.send_email_task_id);
  insert into comms.send_email_task_supervised (send_email_task_id, run, supervised_at, decision, reason)
  values (_send.send_email_task_id, comms.count_send_email_task_runs(_send.send_email_task_id) + 1, queues.clock(), 'cancelled', _reason);
  perform queues.nudge(_waiting);
  perform queues.note_supervision('comms.send_email', _send.send_email_task_id, null, decision => 'cancelled', reason => _reason);
  return 'cancelled';
end
$$;

comment on function comms.cancel_send_email_task(bigint, text) is
  'Cancels a send of an e-mail that has not ended, and returns how it ended: cancelled, or its earlier end.';
