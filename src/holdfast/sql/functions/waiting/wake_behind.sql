-- Wakes idle workers where a due task waits for the end of one of these, which ran under a limit. Nobody if the worker that reported the
-- end is idle itself: it looks again by itself. A hint only: who misses it polls. Behind tell_waiters.
create or replace function queues.wake_behind(task_ids uuid[], worker_id text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  if not exists (select from queues.worker w where w.idle)
    or exists (select from queues.worker w where w.idle and w.worker_id = wake_behind.worker_id)
  then
    return;
  end if;
  perform pg_notify('holdfast', behind.queue)
  from (
    -- Of one key, what waits at another priority is left to polling: the index has no order for it.
    select ended.queue
    from (select distinct t.queue, t.type, t.priority, t.concurrency_key from queues.task t
      where t.task_id = any (task_ids) and t.concurrency_key is not null) ended
    join queues.lane l on l.queue = ended.queue and l.type = ended.type and l.priority = ended.priority
      and l.concurrency_key = ended.concurrency_key
    where exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= _now)
    union
    select ended.queue
    from (select distinct t.queue, t.type from queues.task t where t.task_id = any (task_ids)) ended
    where exists (
      select from queues.task_limit k join queues.lane l on k.subject = 'queue' and l.queue = k.name or l.queue = ended.queue and l.type = k.name
      where (k.subject, k.name) in (('queue', ended.queue), ('type', ended.type))
        and exists (select from queues.ready r where r.lane_id = l.lane_id and r.run_at <= _now))) behind
  where not queues.is_kept(behind.queue, _now)
    and not exists (select from queues.paused_queue p where p.queue = behind.queue);
end
$$;

comment on function queues.wake_behind(uuid[], text) is 'Wakes idle workers where a due task waits for the end of one of these.';
