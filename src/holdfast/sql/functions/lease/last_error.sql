-- Returns the last error of a task that the worker holds, in its current generation, or null. Also returns how long ago
-- the first failed attempt was claimed. A worker must know what may have happened outside the database before it
-- repeats it.
-- For holdfast_worker. Locks: nothing.
create or replace function queues.last_error(worker_id text, task_id uuid, token bigint)
returns table (kind text, recovered boolean, detail jsonb, age interval)
language sql stable security definer rows 1
set search_path = pg_catalog, pg_temp
as $$
  select e.kind, e.recovered, e.detail,
    queues.clock() - (select min(f.claimed_at) from queues.error f
      where f.task_id = l.task_id and f.step is null and f.generation = coalesce(l.generation, 1))
  from queues.lease l
  cross join lateral (
    select e.kind, e.recovered, e.detail from queues.error e
    where e.task_id = l.task_id and e.step is null and e.generation = coalesce(l.generation, 1)
    order by e.error_id desc limit 1) e
  where l.task_id = last_error.task_id and l.token = last_error.token and l.worker_id = last_error.worker_id
$$;

comment on function queues.last_error(text, uuid, bigint) is
  'Returns the last error of a task that the worker holds, or null.';
