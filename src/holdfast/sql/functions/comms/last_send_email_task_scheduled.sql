-- Returns the last scheduled attempt, or null.
-- Internal: a fact for the supervisor.
create or replace function comms.last_send_email_task_scheduled(send_email_task_id bigint)
returns comms.send_email_task_scheduled
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s from comms.send_email_task_scheduled s
  where s.send_email_task_id = last_send_email_task_scheduled.send_email_task_id order by s.attempt desc limit 1
$$;

comment on function comms.last_send_email_task_scheduled(bigint) is 'Returns the last scheduled attempt, or null.';
