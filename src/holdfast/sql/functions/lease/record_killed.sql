-- Records how runs ended that their worker killed because the task was cancelled, deleted, released or lost. Writes one
-- error for each, without settling the task. Returns recorded, already_done, or lost if the worker never held the task
-- with this token.
-- For holdfast_worker. Locks: none.
create or replace function queues.record_killed(worker_id text, killed jsonb)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('killed', killed);
  _now constant timestamptz := queues.clock();
begin
  return query
  with given as materialized (
    select k.n, k.task_id, k.token, queues.storable(k.error, 65536) as error,
      (select a.attempt from queues.attempt_by_token(k.task_id, k.token) a
        where a.worker_id = record_killed.worker_id) as attempt,
      (select true from queues.error e
        where e.task_id = k.task_id and e.token = k.token and e.kind = k.error ->> 'kind' and e.step is null
        limit 1) as known
    from rows from (jsonb_to_recordset(killed) as (task_id uuid, token bigint, error jsonb))
      with ordinality k(task_id, token, error, n)),
  kept as (
    -- No claimed_at: the rows that settled the task contain it.
    insert into queues.error (task_id, token, occurred_at, attempt, recovered, kind, message, worker_id, detail,
      generation)
    select g.task_id, g.token, _now, g.attempt, false,
      queues.error_kind(g.error, 'killed'),
      queues.error_message(g.error, 'no message'), record_killed.worker_id, g.error,
      queues.current_generation(g.task_id)
    from given g where g.attempt is not null and g.known is null)
  select g.task_id, case when g.attempt is null then 'lost' when g.known then 'already_done' else 'recorded' end
  from given g order by g.n;
end
$$;

comment on function queues.record_killed(text, jsonb) is
  'Records how runs ended that their worker killed because the task was cancelled, deleted, released or lost.';
