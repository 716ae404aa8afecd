-- Ends a search for a task that moves from table to table faster than it can be caught, or that retention has removed meanwhile.
create or replace function queues.give_up_after(tries integer, task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from queues.task t where t.task_id = give_up_after.task_id) then
    raise exception using errcode = 'QF404', message = format('there is no task %s', task_id),
      hint = 'It has just been removed by retention.';
  end if;
  if tries >= 100 then
    raise exception using errcode = 'QF503', message = format('task %s moves too fast to be caught; try again', task_id);
  end if;
end
$$;

comment on function queues.give_up_after(integer, uuid) is
  'Ends a search for a task that moves from table to table faster than it can be caught.';
