-- Returns the send of a payload, locked until the end of the transaction, or null. The lock serializes the supervisor's
-- decisions and the handlers' records, so that neither misses the other.
-- Internal. Locks: the row of comms.send_email_task.
create or replace function comms.lock_send_email_task(payload jsonb)
returns comms.send_email_task
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select t from comms.send_email_task t
  where t.send_email_task_id = comms.id_of(payload, 'send_email_task_id')
  for update
$$;

comment on function comms.lock_send_email_task(jsonb) is
  'Returns the send of a payload, locked until the end of the transaction, or null.';
