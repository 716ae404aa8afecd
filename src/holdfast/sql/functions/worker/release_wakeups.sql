-- Stops throttling the wake-ups of queues, and wakes idle workers for tasks that are due soon. Call notify_idle once
-- afterwards for tasks that are due, because tasks enqueued until now woke no worker.
-- For holdfast_worker. Locks: the rows of queues.wakeup_throttle.
create or replace function queues.release_wakeups(worker_id text, queues text[])
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  delete from queues.wakeup_throttle d
  where d.queue in (
    select kept.queue from queues.wakeup_throttle kept
    where kept.queue = any (release_wakeups.queues) and kept.worker_id = release_wakeups.worker_id
    for update skip locked);
  if not queues.may_notify() then
    return;
  end if;
  -- Tasks that are due soon sent no wake-up, and notify_idle only looks for those that are due.
  perform pg_notify('holdfast', soon.queue)
  from (
    select distinct l.queue from queues.lane l
    cross join lateral (
      select from queues.ready r
      where r.lane_id = l.lane_id and r.run_at > _now and r.run_at <= _now + interval '6 seconds'
      order by r.run_at, r.task_id limit 1) r
    where l.queue = any (release_wakeups.queues)) soon
  where exists (
    select from queues.worker w where w.idle and (soon.queue = any (w.queues) or cardinality(w.type_prefixes) > 0));
end
$$;

comment on function queues.release_wakeups(text, text[]) is 'Stops throttling the wake-ups of queues.';
