-- Returns how many attempts were scheduled.
-- Internal: a fact for the supervisor.
create or replace function comms.count_send_sms_task_scheduled(send_sms_task_id bigint)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*)::integer from comms.send_sms_task_scheduled s
  where s.send_sms_task_id = count_send_sms_task_scheduled.send_sms_task_id
$$;

comment on function comms.count_send_sms_task_scheduled(bigint) is 'Returns how many attempts were scheduled.';
