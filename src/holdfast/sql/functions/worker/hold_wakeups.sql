-- Throttles the wake-ups of queues for half a second: enqueueing sends none, and this worker sends them instead. It
-- calls notify_idle for that. Calling it again in time extends it; if the worker dies or hangs, it expires. Returns the
-- queues whose wake-ups this worker now throttles; other workers have the rest.
-- For holdfast_worker. Locks: the rows of queues.wakeup_throttle, by name.
create or replace function queues.hold_wakeups(worker_id text, queues text[])
returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_claim(worker_id, 1, null, null, null, null);
  _now constant timestamptz := queues.clock();
  _kept text[];
begin
  with kept as (
    insert into queues.wakeup_throttle as d (queue, worker_id, kept_until)
    select distinct asked.queue, hold_wakeups.worker_id, _now + interval '500 milliseconds'
    from unnest(hold_wakeups.queues) asked(queue) where asked.queue is not null order by asked.queue
    on conflict (queue) do update set worker_id = excluded.worker_id, kept_until = excluded.kept_until
    where d.worker_id = excluded.worker_id or d.kept_until not between _now and _now + interval '1 second'
    returning d.queue)
  select array_agg(k.queue) into _kept from kept k;
  return coalesce(_kept, '{}');
end
$$;

comment on function queues.hold_wakeups(text, text[]) is
  'Throttles the wake-ups of queues for half a second: enqueueing sends none, and this worker sends them instead.';
