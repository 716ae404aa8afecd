-- Returns how many runs of the supervisor have waited for the last scheduled attempt.
-- Internal: a fact for the supervisor.
create or replace function comms.count_send_email_task_waits(send_email_task_id bigint)
returns integer
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*)::integer from comms.send_email_task_supervised s
  where s.send_email_task_id = count_send_email_task_waits.send_email_task_id and s.decision = 'wait' and s.run > coalesce((
    select max(a.run) from comms.send_email_task_supervised a
    where a.send_email_task_id = count_send_email_task_waits.send_email_task_id and a.decision = 'attempt'), 0)
$$;

comment on function comms.count_send_email_task_waits(bigint) is
  'Returns how many runs of the supervisor have waited for the last scheduled attempt.';
