-- Returns the send of a payload, locked until the end of the transaction, or null. The lock serializes the supervisor's
-- decisions and the handlers' records, so that neither misses the other.
-- Internal. Locks: the row of comms.send_task.
create or replace function comms.lock_send(channel text, payload jsonb)
returns comms.send_task
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select t from comms.send_task t
  where t.send_task_id = comms.send_id(lock_send.channel, payload) and t.channel = lock_send.channel
  for update
$$;

comment on function comms.lock_send(text, jsonb) is
  'Returns the send of a payload, locked until the end of the transaction, or null.';
