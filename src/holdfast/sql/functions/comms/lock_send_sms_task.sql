-- The send that a payload is about, locked until the end of the transaction, or null. What its supervisor decides and what its handlers record
-- comes one after the other: neither overlooks the other. Locks: the row of comms.send_sms_task.
create or replace function comms.lock_send_sms_task(payload jsonb)
returns comms.send_sms_task
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select t from comms.send_sms_task t
  where t.send_sms_task_id = comms.id_of(payload, 'send_sms_task_id')
  for update
$$;

comment on function comms.lock_send_sms_task(jsonb) is
  'The send that a payload is about, locked until the end of the transaction, or null.';
