-- Makes those of the given runs due whose wait is over: a signal has come that none of their steps has taken, or the
-- awaited tasks have ended. Returns how many got a signal. A worker calls it after the commit of a suspension, and the
-- chore wake does the same for all runs: a look after the later of two commits sees both.
-- For holdfast_worker. Locks: chores, then rows of queues.wait, then ready rows, without waiting.
create or replace function queues.wake_waiting(task_ids uuid[])
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _chores constant bigint[] := array(
    select c.chore_id from queues.chore c
    where c.task_id = any (task_ids) and c.kind = 'w' limit 1000 for update skip locked);
begin
  if _chores = '{}' then
    return 0;
  end if;
  return (select w.woken from queues.wake_chores(_chores, queues.clock()) w);
end
$$;

comment on function queues.wake_waiting(uuid[]) is
  'Makes those of the given runs due whose wait is over, and returns how many got a signal.';
