-- Returns concurrency keys whose due tasks wait until a task of the same key ends: how many wait, at most 100 of each
-- key, how many run and the one that was claimed first, and since when the first is due. Looks at no more than 1,000
-- keys.
-- For holdfast_reader. Locks: none.
create or replace function queues.list_waiting_keys(of_queue text default null, max_keys integer default 50)
returns table (
  queue text, namespace text, concurrency_key text, waiting bigint, running bigint, oldest_due timestamptz,
  running_task_id uuid)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  if max_keys is null or max_keys not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_keys must be between 1 and 1000';
  end if;
  return query
  select l.queue, l.namespace, l.concurrency_key, w.waiting,
    (select count(*) from queues.lease e join queues.task t on t.task_id = e.task_id
      where e.concurrency_key = queues.qualified_key(l.namespace, l.concurrency_key) and l.type in ('', t.type)),
    w.oldest_due,
    (select e.task_id from queues.lease e join queues.task t on t.task_id = e.task_id
      where e.concurrency_key = queues.qualified_key(l.namespace, l.concurrency_key) and l.type in ('', t.type)
      order by e.claimed_at, e.task_id limit 1)
  from (
    select l.* from queues.lane l
    where l.concurrency_key > '' and (of_queue is null or l.queue = of_queue) limit 1000) l
  cross join lateral (
    select count(*) as waiting, min(r.run_at) as oldest_due
    from (
      select r.run_at from queues.ready r
      where r.lane_id = l.lane_id and r.run_at <= queues.clock() order by r.run_at, r.task_id limit 100) r) w
  where w.waiting > 0
  order by w.waiting desc, w.oldest_due, l.concurrency_key
  limit max_keys;
end
$$;

comment on function queues.list_waiting_keys(text, integer) is
  'Returns concurrency keys whose due tasks wait until a task of the same key ends.';
