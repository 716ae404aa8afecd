-- Removes a worker from the registry, ends its leadership, and returns whether it was registered. Its leases end by
-- themselves. But if it lists what it has begun and neither ended nor released, its other leases are given back as by
-- a release, unless a heartbeat has told that the task has begun: the answer of a claim, or a release, was lost. What
-- another transaction has locked ends by itself.
-- For holdfast_worker. Locks: the leadership, then the worker's row, then its leases, without waiting.
create or replace function queues.retire_worker(worker_id text, begun jsonb default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  _checked constant boolean := begun is null or queues.check_batch('begun', begun);
  _unbegun uuid[];
begin
  perform queues.resign(worker_id);
  perform from queues.worker w where w.worker_id = retire_worker.worker_id for update;
  if not found then
    return false;
  end if;
  if begun is not null then
    -- Reads the leases of all workers: every claim and every heartbeat would have to maintain an index.
    _unbegun := array(
      select l.task_id from queues.lease l
      where l.worker_id = retire_worker.worker_id and l.started_at is null
        and not exists (
          select from jsonb_to_recordset(begun) b(task_id uuid, token bigint)
          where b.task_id = l.task_id and b.token = l.token)
      limit 10000
      for update skip locked);
    if _unbegun <> '{}' then
      -- Its last word about them, which recover_leases looks for.
      update queues.worker w set listed_at = 'infinity' where w.worker_id = retire_worker.worker_id;
      perform queues.recover_leases(_unbegun, queues.clock());
    end if;
  end if;
  delete from queues.worker w where w.worker_id = retire_worker.worker_id;
  return true;
end
$$;

comment on function queues.retire_worker(text, jsonb) is
  'Removes a worker from the registry, ends its leadership, and returns whether it was registered.';
