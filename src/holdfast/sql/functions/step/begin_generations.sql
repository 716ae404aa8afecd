-- Begins the next generation of runs that go on by ctx.continue_as, with other arguments and no memory. They stay the
-- same tasks: ids, keys, signals, deadlines and all who wait for them stay as they are.
-- Internal: called by finish, which has ended their leases, recorded their last steps and made them ready.
create or replace function queues.begin_generations(continued jsonb, now timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _ids constant uuid[] := array(select c.task_id from jsonb_to_recordset(continued) as c(task_id uuid));
begin
  insert into queues.generation (task_id, ended_at, number, payload)
  select t.task_id, begin_generations.now, coalesce(t.generation, 1), t.payload
  from queues.task t where t.task_id = any (_ids);
  perform set_config('holdfast.continues', 'on', true);
  update queues.task t set payload = c.payload, generation = coalesce(t.generation, 1) + 1
  from jsonb_to_recordset(continued) as c(task_id uuid, payload jsonb)
  where t.task_id = any (_ids) and t.task_id = c.task_id;
  perform set_config('holdfast.continues', 'off', true);
  delete from queues.wait w where w.task_id = any (_ids);
  perform queues.wake_for(c.task_id) from unnest(_ids) c(task_id);
end
$$;

comment on function queues.begin_generations(jsonb, timestamptz) is
  'Begins the next generation of runs that go on by ctx.continue_as.';
