-- Returns the task that is the next run of the supervisor, or null.
-- Internal: a fact for the supervisor.
create or replace function comms.waiting_send_email_supervisor(send_email_task_id bigint)
returns uuid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s.next_task_id from comms.send_email_task_supervised s
  where s.send_email_task_id = waiting_send_email_supervisor.send_email_task_id order by s.run desc limit 1
$$;

comment on function comms.waiting_send_email_supervisor(bigint) is
  'Returns the task that is the next run of the supervisor, or null.';
