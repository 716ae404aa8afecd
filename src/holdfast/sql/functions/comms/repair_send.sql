-- Enqueues the supervisors of sends that have none, at most max_processes of the payload. The worker itself enqueues
-- nothing: this function has its owner's rights. Repeating it changes nothing.
-- Internal; comms.repair_send_email and comms.repair_send_sms are for holdfast_worker. Locks: rows of comms.send_task,
-- without waiting.
create or replace function comms.repair_send(channel text, payload jsonb)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  _process constant text := 'comms.send_' || channel;
  _most constant integer := case when payload ->> 'max_processes' ~ '^[1-9][0-9]{0,3}$'
    then (payload ->> 'max_processes')::integer end;
  _id bigint;
  _exists boolean;
  _ended text;
  _now constant timestamptz := queues.clock();
  _repaired integer := 0;
begin
  if _most is null then
    return jsonb_build_object(
      'success', false, 'validation_failure_message', 'max_processes must be between 1 and 9999');
  end if;
  for _id in select o.process_id from queues.orphans(_process, _most) o(process_id) loop
    perform from comms.send_task t where t.send_task_id = _id and t.channel = repair_send.channel
    for update skip locked;
    _exists := found;
    continue when not _exists and exists (select from comms.send_task t where t.send_task_id = _id)
      or queues.is_supervised(_process, _id);
    select s.decision into _ended from comms.send_task_supervised s
    where s.send_task_id = _id and s.next_task_id is null;
    if found then
      perform queues.note_supervision(_process, _id, null, decision => _ended);
    elsif not _exists then
      perform queues.note_supervision(_process, _id, null, decision => 'gave_up', reason => 'the send was removed');
    else
      perform queues.note_supervision(_process, _id,
        comms.enqueue_supervisor(channel, _id, _now, (comms.read_facts(_id)).runs + 1), _now);
      _repaired := _repaired + 1;
    end if;
  end loop;
  return jsonb_build_object('success', true, 'payload', jsonb_build_object('repaired', _repaired));
end
$$;

comment on function comms.repair_send(text, jsonb) is
  'Enqueues the supervisors of sends that have none, at most max_processes of the payload.';

create or replace function comms.repair_send_email(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.repair_send('email', payload) $$;
comment on function comms.repair_send_email(jsonb) is
  'Enqueues the supervisors of sends of an e-mail that have none, at most max_processes of the payload.';

create or replace function comms.repair_send_sms(payload jsonb)
returns jsonb language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ select comms.repair_send('sms', payload) $$;
comment on function comms.repair_send_sms(jsonb) is
  'Enqueues the supervisors of sends of a text message that have none, at most max_processes of the payload.';
