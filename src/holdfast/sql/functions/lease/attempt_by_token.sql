-- Returns the attempt that was made with this token, and its worker; nulls if the task was never held with it.
-- Internal: called by record_killed and insert_steps. Locks: none.
create or replace function queues.attempt_by_token(task_id uuid, token bigint, out attempt integer, out worker_id text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select found.attempt, found.worker_id
  from (select 1) one
  left join lateral (
    (select l.attempt, l.worker_id from queues.lease l
     where l.task_id = $1 and l.token = $2 limit 1)
    union all
    (select o.attempt, o.worker_id from queues.outcome o
     where o.task_id = $1 and o.token = $2 limit 1)
    union all
    (select a.attempt, a.worker_id from queues.act a
     where a.task_id = $1 and a.token = $2 and a.worker_id is not null limit 1)
    union all
    (select e.attempt, e.worker_id from queues.error e
     where e.task_id = $1 and e.token = $2 limit 1)
    limit 1) found on true
$$;

comment on function queues.attempt_by_token(uuid, bigint) is
  'Returns the attempt that was made with this token, and its worker; nulls if the task was never held with it.';
