-- Returns whether the provider has accepted the e-mail.
-- Internal: a fact for the supervisor.
create or replace function comms.has_send_email_task_succeeded(send_email_task_id bigint)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from comms.send_email_task_succeeded s where s.send_email_task_id = has_send_email_task_succeeded.send_email_task_id)
$$;

comment on function comms.has_send_email_task_succeeded(bigint) is
  'Returns whether the provider has accepted the e-mail.';
