-- Looks at the joins that wait for one of these tasks, which have just ended: moves their pointers, and makes runs due
-- whose join is over. Returns the runs to look at again with wake_waiting after the commit; null if no run waits for a
-- task at all. Call it after the commit of what ended the tasks; the chore join looks at all joins in turn, for a
-- worker that died between the two calls.
-- For holdfast_worker. Locks: rows of queues.wait, then ready rows, without waiting.
create or replace function queues.wake_joined(task_ids uuid[])
returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  if not exists (select from queues.wait w where w.on_task is not null) then
    return null;
  end if;
  return queues.settle_joins(coalesce(task_ids, '{}'), '{}', queues.clock());
end
$$;

comment on function queues.wake_joined(uuid[]) is
  'Looks at the joins that wait for one of these tasks, which have just ended, and makes runs due whose join is over.';
