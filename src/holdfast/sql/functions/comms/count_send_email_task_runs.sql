-- Returns how many times the supervisor has run.
-- Internal: a fact for the supervisor.
create or replace function comms.count_send_email_task_runs(send_email_task_id bigint)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*)::integer from comms.send_email_task_supervised s
  where s.send_email_task_id = count_send_email_task_runs.send_email_task_id
$$;

comment on function comms.count_send_email_task_runs(bigint) is 'Returns how many times the supervisor has run.';
