-- Settles a batch of results and returns a verdict for each: accepted, already_done, cancelled, lost or busy. Each
-- result is checked against its token, so a worker that lost its lease changes nothing. Repeating an accepted call also
-- changes nothing and returns already_done. If another transaction has locked the lease, the verdict is busy: nothing
-- is recorded, and the caller repeats the call. The content of a result or error is never a reason to refuse it. A
-- worker with looks_again claims after this call by itself: it is not notified that a limit has room for a due task.
-- For holdfast_worker. Locks: lease rows, without waiting.
create or replace function queues.finish(worker_id text, results jsonb, looks_again boolean default false)
returns table (task_id uuid, verdict text)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  _checked constant boolean := queues.check_batch('results', results);
  -- The commit waits for the disk, whatever the session says. A setting of the function would end before the commit.
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _accepted uuid[];
  _places integer[];
begin
  -- Strict comparison: a missing status, or one that is not text, is not a success.
  if jsonb_path_exists(results,
    'strict $[*] ? (!(@.status == "succeeded") || (@.status == "succeeded") is unknown || exists (@.steps))') then
    select s.accepted, s.places into _accepted, _places from queues.settle_mixed(worker_id, results, _now) s;
  else
    select s.accepted, s.places into _accepted, _places from queues.settle_succeeded(worker_id, results, _now) s;
  end if;

  perform queues.notify_waiters(_accepted, case when looks_again then worker_id end);
  if cardinality(_accepted) = jsonb_array_length(results) then
    return query select accepted.task_id, 'accepted' from unnest(_accepted) accepted(task_id);
  else
    return query select v.task_id, v.verdict from queues.verdicts(worker_id, results, coalesce(_places, '{}')) v;
  end if;
end
$$;

comment on function queues.finish(text, jsonb, boolean) is
  'Settles a batch of results and returns a verdict for each: accepted, already_done, cancelled, lost or busy.';
