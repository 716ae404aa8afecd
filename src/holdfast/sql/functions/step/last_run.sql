-- Returns the run that goes on where this one has ended by ctx.continue_as, else the run itself.
-- Internal.
create or replace function queues.last_run(task_id uuid)
returns uuid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _last uuid := task_id;
  _next uuid;
begin
  loop
    select c.next_id into _next from queues.continuation c where c.task_id = _last;
    if not found then
      return _last;
    end if;
    _last := _next;
  end loop;
end
$$;

comment on function queues.last_run(uuid) is
  'Returns the run that goes on where this one has ended by ctx.continue_as, else the run itself.';
