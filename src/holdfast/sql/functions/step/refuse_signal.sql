-- Raises the error of a step that takes a signal of another run; returns nothing.
-- Internal: called by insert_steps for such a step only.
create or replace function queues.refuse_signal(task_id uuid, signal_id bigint)
returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'QF400',
    message = format('signal %s cannot be taken by a step of task %s', signal_id, task_id),
    hint = 'A step takes only signals that were sent to its own task.';
end
$$;

comment on function queues.refuse_signal(uuid, bigint) is
  'Raises the error of a step that takes a signal of another run.';
