-- Returns whether this attempt has succeeded.
-- Internal: a fact for the supervisor.
create or replace function comms.has_email_attempt_succeeded(send_email_task_id bigint, attempt integer)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from comms.send_email_task_succeeded f
    where f.send_email_task_id = has_email_attempt_succeeded.send_email_task_id and f.attempt = has_email_attempt_succeeded.attempt)
$$;

comment on function comms.has_email_attempt_succeeded(bigint, integer) is 'Returns whether this attempt has succeeded.';
