-- Returns how an attempt of a send ended: succeeded, failed, or null if that is not recorded.
-- Internal.
create or replace function comms.attempt_result(send_task_id bigint, attempt integer)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'failed' from comms.send_task_failed f where f.send_task_id = $1 and f.attempt = $2
  union all
  select 'succeeded' from comms.send_task_succeeded s where s.send_task_id = $1 and s.attempt = $2
$$;

comment on function comms.attempt_result(bigint, integer) is
  'Returns how an attempt of a send ended: succeeded, failed, or null if that is not recorded.';
