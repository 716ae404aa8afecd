-- Returns the task that an enqueue with this key has to use, or else null. Locks the key, so that another enqueue of it
-- waits until this transaction ends. For a debounced task, cancels the one that waits, or records that the one that a
-- worker holds is replaced, and returns when the new one is to run.
-- Internal: called by insert_arranged. Locks: the row of the key, then the ready row, by lock_task.
create or replace function queues.find_unique(
  type text, key text, "unique" text, debounce interval, debounce_max interval, namespace text default null,
  out task_id uuid, out run_at timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _namespace constant text := coalesce(find_unique.namespace, queues.namespace());
  _held queues.unique_task;
  _place text;
  _attempt integer;
  _waits boolean;
begin
  if key is null or octet_length(key) not between 1 and 500 then
    raise exception using errcode = 'QF400', message = 'a unique or debounced task needs a key of 1 to 500 bytes';
  elsif num_nonnulls("unique", debounce) <> 1 or "unique" not in ('waiting', 'unfinished') then
    raise exception using errcode = 'QF400',
      message = 'give either unique, which is waiting or unfinished, or debounce';
  elsif debounce not between interval '0' and interval '1 year'
    or debounce_max not between debounce and interval '1 year'
    or debounce_max is not null and debounce is null
  then
    raise exception using errcode = 'QF400',
      message = 'debounce is at most one year, and debounce_max at least as long';
  end if;
  perform queues.check_name('type', type);

  for _try in 1..10 loop
    insert into queues.unique_task (type, key, namespace) values (find_unique.type, find_unique.key, _namespace)
    on conflict do nothing;
    select * into _held from queues.unique_task u
    where u.type = find_unique.type and u.key = find_unique.key and u.namespace = _namespace for update;
    exit when found;
  end loop;
  if not found then
    raise exception using errcode = 'QF503', message = 'the key of a unique task is removed too often; try again';
  end if;
  if _held.task_id is not null then
    -- Locked until the caller's transaction ends: a claim in between would run without seeing its changes.
    select l.place, l.attempt into _place, _attempt from queues.lock_task(_held.task_id, array['ready']) l;
    _waits := _place = 'ready' and (debounce is null or _attempt = 0 and queues.current_generation(_held.task_id) = 1)
      and (select true from queues.wait w where w.task_id = _held.task_id and w.name <> '' limit 1) is null;
    if _waits and debounce is null
      or "unique" = 'unfinished' and _place in ('ready', 'lease')
        and not exists (select from queues.deletion d where d.task_id = _held.task_id)
    then
      task_id := _held.task_id;
      return;
    end if;
  end if;
  if debounce is not null then
    _held.first_at := case when _waits then coalesce(_held.first_at, _now) else _now end;
    run_at := greatest(_now, least(_now + debounce, _held.first_at + debounce_max));
    if _waits then
      perform queues.cancel_now(_held.task_id, 'debounced: replaced by a later one');
    elsif _place = 'lease' and _attempt = 1 and queues.current_generation(_held.task_id) = 1 then
      -- Without a lock on the lease, for which the worker's reports would wait. See cancel_replaced.
      insert into queues.act (task_id, act, occurred_at, attempt, worker_id, actor, reason)
      values (_held.task_id, 'replaced', _now, 1, (
        select l.worker_id from queues.lease l where l.task_id = _held.task_id), queues.actor(),
        'debounced: a later one was enqueued while this one was held');
    end if;
    update queues.unique_task u set first_at = _held.first_at
    where u.type = find_unique.type and u.key = find_unique.key and u.namespace = _namespace;
  end if;
end
$$;

comment on function queues.find_unique(text, text, text, interval, interval, text) is
  'Returns the task that an enqueue with this key has to use, or else null, and locks the key.';
