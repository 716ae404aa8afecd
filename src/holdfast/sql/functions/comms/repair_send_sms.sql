-- Enqueues the supervisors of sends that have none, at most max_processes of the payload. The worker itself enqueues
-- nothing: this function has its owner's rights. Repeating it changes nothing.
-- For holdfast_worker. Locks: rows of comms.send_sms_task, without waiting.
create or replace function comms.repair_send_sms(payload jsonb)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  _most constant integer := case when payload ->> 'max_processes' ~ '^[1-9][0-9]{0,3}$' then (payload ->> 'max_processes')::integer end;
  _id bigint;
  _ended text;
  _repaired integer := 0;
begin
  if _most is null then
    return jsonb_build_object('success', false, 'validation_failure_message', 'max_processes must be between 1 and 9999');
  end if;
  for _id in select o.process_id from queues.orphans('comms.send_sms', _most) o(process_id) loop
    perform from comms.send_sms_task t where t.send_sms_task_id = _id for update skip locked;
    continue when not found and exists (select from comms.send_sms_task t where t.send_sms_task_id = _id)
      or queues.is_supervised('comms.send_sms', _id);
    select s.decision into _ended from comms.send_sms_task_supervised s where s.send_sms_task_id = _id and s.next_task_id is null;
    if found then
      perform queues.note_supervision('comms.send_sms', _id, null, decision => _ended);
    elsif not exists (select from comms.send_sms_task t where t.send_sms_task_id = _id) then
      perform queues.note_supervision('comms.send_sms', _id, null, decision => 'gave_up', reason => 'the send was removed');
    else
      perform queues.note_supervision('comms.send_sms', _id, queues.enqueue('comms.send_sms_supervisor', max_attempts => 25,
        payload => jsonb_build_object('task_type', 'db_function', 'db_function', 'comms.send_sms_supervisor',
          'send_sms_task_id', _id, 'run', comms.count_send_sms_task_runs(_id) + 1)), queues.clock());
      _repaired := _repaired + 1;
    end if;
  end loop;
  return jsonb_build_object('success', true, 'payload', jsonb_build_object('repaired', _repaired));
end
$$;

comment on function comms.repair_send_sms(jsonb) is
  'Enqueues the supervisors of sends that have none, at most max_processes of the payload.';
