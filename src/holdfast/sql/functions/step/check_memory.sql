-- Refuses to go on with a run whose steps retention has removed: all of them would run again.
-- Internal: called by retry and fork.
create or replace function queues.check_memory(task_id uuid)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queues.step s where s.task_id = check_memory.task_id and s.kind = 'r') then
    raise exception using errcode = 'QF412',
      message = format('retention has removed the steps of run %s, so they would all run again', task_id),
      hint = 'Replay it to run it from its beginning. holdfast retention set steps keeps steps longer.';
  end if;
end
$$;

comment on function queues.check_memory(uuid) is
  'Refuses to go on with a run whose steps retention has removed.';
