-- Returns how the last failed attempt failed, or null.
-- Internal: a fact for the supervisor.
create or replace function comms.last_send_sms_task_failure(send_sms_task_id bigint)
returns comms.send_sms_task_failed
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select f from comms.send_sms_task_failed f
  where f.send_sms_task_id = last_send_sms_task_failure.send_sms_task_id order by f.attempt desc limit 1
$$;

comment on function comms.last_send_sms_task_failure(bigint) is 'Returns how the last failed attempt failed, or null.';
