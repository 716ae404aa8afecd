-- Returns whether the supervisor has made its last decision.
-- Internal: a fact for the supervisor.
create or replace function comms.has_send_sms_task_ended(send_sms_task_id bigint)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from comms.send_sms_task_supervised s
    where s.send_sms_task_id = has_send_sms_task_ended.send_sms_task_id and s.next_task_id is null)
$$;

comment on function comms.has_send_sms_task_ended(bigint) is
  'Returns whether the supervisor has made its last decision.';
