-- Wakes idle workers of queues with a task that just became due and still waits; returns whether there is one. Just
-- means within the last quarter of a second. Tasks that have waited longer wait for something else: a limit, or a
-- worker with capacity.
-- For holdfast_worker. Locks: none.
create or replace function queues.notify_idle(queues text[])
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _waiting constant text[] := array(
    select distinct l.queue
    from queues.lane l
    cross join lateral (
      select from queues.ready r
      where r.lane_id = l.lane_id and r.run_at <= _now and r.run_at > _now - interval '250 milliseconds'
      order by r.run_at, r.task_id limit 1) young
    where l.queue = any (notify_idle.queues)
      and not exists (select from queues.paused_queue p where p.queue = l.queue));
begin
  if cardinality(_waiting) > 0 and queues.may_notify() then
    perform pg_notify('holdfast', q.queue)
    from unnest(_waiting) q(queue)
    where exists (
      select from queues.worker w where w.idle and (q.queue = any (w.queues) or cardinality(w.type_prefixes) > 0));
  end if;
  return cardinality(_waiting) > 0;
end
$$;

comment on function queues.notify_idle(text[]) is
  'Wakes idle workers of queues with a task that just became due and still waits; returns whether there is one.';
