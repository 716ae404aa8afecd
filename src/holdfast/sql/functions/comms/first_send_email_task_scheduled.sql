-- Returns when the first attempt was scheduled, or null.
-- Internal: a fact for the supervisor.
create or replace function comms.first_send_email_task_scheduled(send_email_task_id bigint)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s.scheduled_at from comms.send_email_task_scheduled s
  where s.send_email_task_id = first_send_email_task_scheduled.send_email_task_id order by s.attempt limit 1
$$;

comment on function comms.first_send_email_task_scheduled(bigint) is
  'Returns when the first attempt was scheduled, or null.';
