-- Ends the search for a task that changes tables faster than it can be found, or that retention removed.
-- Internal.
create or replace function queues.check_retries(tries integer, task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform queues.status_now(task_id);
  if tries >= 100 then
    raise exception using errcode = 'QF503', message = format('task %s changes state too fast; try again', task_id);
  end if;
end
$$;

comment on function queues.check_retries(integer, uuid) is
  'Ends the search for a task that changes tables faster than it can be found, or that retention removed.';
