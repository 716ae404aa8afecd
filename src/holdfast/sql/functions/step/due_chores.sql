-- Returns the kinds of chores that are to be done: wake, join, cancel or waiter, in the order in which to call
-- do_chores.
-- For holdfast_worker and holdfast_operator. Locks: none.
create or replace function queues.due_chores()
returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
  select array_remove(array[
    case when d.wake then 'wake' end, case when d."join" then 'join' end,
    -- Those two may find tasks to be cancelled.
    case when d.wake or d."join" or exists (select from queues.chore c where c.kind = 'c') then 'cancel' end,
    case when exists (select from queues.waiter w where w.until < queues.clock()) then 'waiter' end], null)
  from (
    select exists (select from queues.chore c where c.kind = 'w') as wake,
      exists (select from queues.wait w where w.on_task is not null) as "join") d
$$;

comment on function queues.due_chores() is 'Returns the kinds of chores that are to be done.';
