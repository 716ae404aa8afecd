-- Makes tasks with ended leases ready again, or dead_letter if their attempts are used up, and counts both. Wakes idle
-- workers for the ready tasks. Any number of workers may call it at once.
-- For holdfast_worker and holdfast_operator. Locks: lease rows, without waiting.
create or replace function queues.sweep(max_tasks integer default 1000)
returns table (recovered integer, dead integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := set_config('synchronous_commit', 'on', true);
  _now constant timestamptz := queues.clock();
  _expired uuid[];
begin
  if max_tasks is null or max_tasks not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 10000';
  end if;

  _expired := array(
    select l.task_id from queues.lease l
    where l.lease_until < _now order by l.lease_until limit max_tasks
    for update skip locked);
  recovered := 0;
  dead := 0;
  if _expired <> '{}' then
    select r.recovered, r.dead into recovered, dead from queues.recover_leases(_expired, _now) r;
  end if;
  delete from queues.waiter w
  where w.task_id in (select held.task_id from queues.waiter held where held.until < _now for update skip locked);
  return next;
end
$$;

comment on function queues.sweep(integer) is
  'Makes tasks with ended leases ready again, or dead_letter if their attempts are used up, and counts both.';
