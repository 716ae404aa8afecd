-- Looks at the joins that wait for one of these tasks, which have just ended: moves their pointers, and makes runs due
-- whose join is over. Returns the runs to look at again with wake_waiting after the commit; null if no run waits for a
-- task at all. Call it after the commit of what ended the tasks. Without tasks, looks at some joins at a time, in turn:
-- so every sweep does, for a worker that died between the two calls.
-- For holdfast_worker. Locks: rows of queues.wait, then ready rows, without waiting.
create or replace function queues.wake_joined(task_ids uuid[] default null)
returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _last uuid;
  _next uuid;
  _again uuid[];
begin
  if not exists (select from queues.wait w where w.on_task is not null) then
    return null;
  end if;
  if task_ids is null then
    select c.on_task into _last from queues.join_cursor c for update skip locked;
    if not found then
      return '{}';
    end if;
    task_ids := array(
      select distinct w.on_task from queues.wait w where w.on_task > _last order by w.on_task limit 1000);
    -- Begins again after the last one.
    _next := coalesce(task_ids[1000], '00000000-0000-0000-0000-000000000000');
    update queues.join_cursor c set on_task = _next where c.on_task <> _next;
    task_ids := array(
      select t.task_id from unnest(task_ids) t(task_id)
      where (select true from queues.outcome o where o.task_id = t.task_id limit 1)
        or (select true from queues.deletion d where d.task_id = t.task_id limit 1)
        or (select true from queues.task k where k.task_id = t.task_id limit 1) is null);
  end if;
  _again := queues.settle_joins(task_ids, '{}', _now);
  perform queues.cancel_unwanted(_now);
  return _again;
end
$$;

comment on function queues.wake_joined(uuid[]) is
  'Looks at the joins that wait for one of these tasks, which have just ended, and makes runs due whose join is over.';
