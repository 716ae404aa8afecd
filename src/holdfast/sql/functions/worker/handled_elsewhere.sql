-- Says of tasks that a worker holds and cannot start: whether another live worker has declared the type, and for how
-- long workers have postponed the task because none of them had its handler or could start its executor. One row per
-- task, in the given order.
-- For holdfast_worker. Locks: none.
create or replace function queues.handled_elsewhere(worker_id text, held jsonb)
returns table (task_id uuid, handled boolean, waiting interval)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('held', held);
  _now constant timestamptz := queues.clock();
begin
  return query
  select h.task_id, coalesce((
      select true from queues.worker w
      where w.worker_id <> handled_elsewhere.worker_id and w.last_heartbeat > _now - w.timeout
        and t.type = any (w.types)
      limit 1), false),
    -- A task that was postponed is claimed again with the same number of the attempt.
    coalesce(_now - (
      select min(a.occurred_at) from queues.act a
      where a.task_id = h.task_id and a.act = 'snoozed' and a.attempt = l.attempt
        and a.data ->> 'kind' in ('no_handler_registered', 'executor_not_available', 'executor_failed')), interval '0')
  from rows from (jsonb_to_recordset(held) as (task_id uuid, token bigint)) with ordinality h(task_id, token, n)
  left join lateral (
    select l.attempt from queues.lease l
    where l.task_id = h.task_id and l.token = h.token and l.worker_id = handled_elsewhere.worker_id offset 0) l on true
  left join lateral (
    select t.type from queues.task t where t.task_id = h.task_id and l.attempt is not null offset 0) t on true
  order by h.n;
end
$$;

comment on function queues.handled_elsewhere(text, jsonb) is
  'Says of tasks that cannot start whether another worker has their handler, and for how long they were postponed.';
