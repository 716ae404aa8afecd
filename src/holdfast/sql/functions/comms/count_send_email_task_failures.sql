-- Returns how many attempts have failed.
-- Internal: a fact for the supervisor.
create or replace function comms.count_send_email_task_failures(send_email_task_id bigint)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*)::integer from comms.send_email_task_failed f
  where f.send_email_task_id = count_send_email_task_failures.send_email_task_id
$$;

comment on function comms.count_send_email_task_failures(bigint) is 'Returns how many attempts have failed.';
