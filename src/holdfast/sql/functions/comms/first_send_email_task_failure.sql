-- Returns when the first attempt failed, or null.
-- Internal: a fact for the supervisor.
create or replace function comms.first_send_email_task_failure(send_email_task_id bigint)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select f.failed_at from comms.send_email_task_failed f
  where f.send_email_task_id = first_send_email_task_failure.send_email_task_id order by f.attempt limit 1
$$;

comment on function comms.first_send_email_task_failure(bigint) is 'Returns when the first attempt failed, or null.';
