-- Does chores of one kind, up to a number, in the name of the engine, and returns how many it did. Call it for each
-- kind in a transaction of its own, so that an error of one kind leaves the others alone. Any number of sessions may
-- call it at once.
--   wake    makes runs due whose signal has come, or whose awaited tasks have ended
--   join    looks at runs that wait for a task, in turn, for a worker that died before it could
--   cancel  cancels children of runs that ended without success, and tasks after those that did, and theirs
--   waiter  forgets clients that no longer wait for a result
-- For holdfast_worker and holdfast_operator. Locks: chores, then rows of queues.wait, then ready rows, leases and
-- outcomes; without waiting.
create or replace function queues.do_chores(kind text, max_chores integer default 1000)
returns integer
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
  _code constant "char" := case do_chores.kind when 'wake' then 'w' when 'cancel' then 'c' end;
  _done integer := 0;
  _chores bigint[];
  _seen bigint[] := '{}';
begin
  if max_chores is null or max_chores not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_chores must be between 1 and 10000';
  elsif do_chores.kind = 'join' then
    return queues.look_at_joins(max_chores, _now);
  elsif do_chores.kind = 'waiter' then
    delete from queues.waiter w
    where w.task_id in (
      select held.task_id from queues.waiter held where held.until < _now limit max_chores for update skip locked);
    get diagnostics _done = row_count;
    return _done;
  elsif _code is null then
    raise exception using errcode = 'QF400', message = format('kind %s is unknown', to_json(do_chores.kind)),
      hint = 'Allowed: wake, join, cancel, waiter.';
  end if;

  perform queues.commit_to_disk();
  -- What is cancelled leads to further chores, which come after those that were there.
  while cardinality(_seen) < max_chores loop
    _chores := array(
      select c.chore_id from queues.chore c
      where c.kind = _code and c.chore_id > coalesce(_seen[cardinality(_seen)], 0)
      order by c.chore_id limit max_chores - cardinality(_seen) for update skip locked);
    exit when _chores = '{}';
    _seen := _seen || _chores;
    if _code = 'w' then
      _done := _done + (select w.done from queues.wake_chores(_chores, _now) w);
    else
      _done := _done + queues.cancel_chores(_chores, _now);
    end if;
  end loop;
  if _done < cardinality(_seen) and cardinality(_seen) = max_chores then
    -- Those whose task another transaction holds come after the others, so that they do not keep the next call from
    -- them.
    update queues.chore c set chore_id = default where c.kind = _code and c.chore_id = any (_seen);
  end if;
  return _done;
end
$$;

comment on function queues.do_chores(text, integer) is
  'Does chores of one kind, up to a number, in the name of the engine, and returns how many it did.';
