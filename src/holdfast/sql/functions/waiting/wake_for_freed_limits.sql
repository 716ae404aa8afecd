-- Wakes idle workers if a due task waits under a limit for the end of one of these tasks. Skips queues that the given
-- worker serves and is idle for: it looks again by itself. A notification is only a hint: a worker that misses it
-- polls.
-- Internal: called by notify_waiters.
create or replace function queues.wake_for_freed_limits(task_ids uuid[], worker_id text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if not exists (select from queues.worker w where w.idle) or not queues.may_notify() then
    return;
  end if;
  perform pg_notify('holdfast', behind.queue)
  from (
    select l.queue
    from (select distinct t.namespace, t.concurrency_key from queues.task t
      where t.task_id = any (task_ids) and t.concurrency_key is not null) ended
    -- Tasks of the key were set aside; bring_back has let some of them be claimed.
    join queues.lane l on l.concurrency_key = ended.concurrency_key and l.namespace = ended.namespace
      and l.concurrency_key > ''
    union
    select l.queue
    from (select distinct t.queue, t.type from queues.task t where t.task_id = any (task_ids)) ended
    cross join lateral (
      select l.queue from queues.lane l
      where exists (select from queues.task_limit k where k.subject = 'queue' and k.name = ended.queue)
        and l.queue = ended.queue
        and exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= _now) limit 1) l
    union
    select l.queue
    from (select distinct t.type from queues.task t where t.task_id = any (task_ids)) ended
    cross join lateral (
      select l.queue from queues.lane l
      where exists (select from queues.task_limit k where k.subject = 'type' and k.name = ended.type)
        and l.type = ended.type
        and exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= _now) limit 1) l) behind
  where exists (
      select from queues.worker w where w.idle and (behind.queue = any (w.queues) or cardinality(w.type_prefixes) > 0))
    and not exists (
      select from queues.worker w
      where w.idle and w.worker_id = wake_for_freed_limits.worker_id and behind.queue = any (w.queues))
    and not queues.are_wakeups_held(behind.queue, _now)
    and not exists (select from queues.paused_queue p where p.queue = behind.queue);
end
$$;

comment on function queues.wake_for_freed_limits(uuid[], text) is
  'Wakes idle workers if a due task waits under a limit for the end of one of these tasks.';
