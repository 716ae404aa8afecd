-- Retention: what ended long ago is deleted, in small steps, as the policies say.
-- Invariant: only tasks that have ended, or were soft-deleted and do not run, are removed, each with everything that
-- belongs to it and in one transaction. Children whose results a run that has not ended still reads are kept. The
-- longest prefix that matches a type decides; without a policy, tasks are kept.
-- Lock order: the mark of the status, outcomes by task_id, deletions, then keys; rows that others hold are skipped, and
-- no other transaction can hold those keys. For steps: rows of queues.generation, then outcomes.
-- At the same time: a retry, a restore or a delete locks the outcome or the deletion first, so retention skips that
-- task; what they commit before is seen, because it reads again after its own locks. Several sessions may prune: the
-- mark lets one at a time go on from where the last pass stopped, and those that are told where to begin skip the rows
-- of each other.
-- Explained in docs/design/retention.md.

-- Removes a retention policy and returns whether it existed. The policy of the next shorter prefix then applies;
-- without one, everything is kept.
-- For holdfast_operator. Locks: the policy's row, then the mark of the status.
create or replace function queues.drop_retention(status text, type_prefix text default '')
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_retention(status);
  delete from queues.retention r
  where r.status = drop_retention.status and r.type_prefix = drop_retention.type_prefix;
  if not found then
    return false;
  end if;
  update queues.retention_mark m set past = '00000000-0000-0000-0000-000000000000'
  where m.status = drop_retention.status;
  return true;
end
$$;

-- Refuses a status that retention does not know.
create or replace function queues.check_retention(status text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if status is null or status not in (
      'succeeded', 'failed', 'dead_letter', 'cancelled', 'deleted', 'history', 'messages', 'steps') then
    raise exception using errcode = 'QF400',
      message = format('retention has no status %s', coalesce(to_json(status)::text, 'null')),
      hint = 'Allowed: succeeded, failed, dead_letter, cancelled, deleted, history, messages, steps.';
  end if;
end
$$;

-- Deletes tasks that the policy no longer keeps, with everything that belongs to them, in limited steps. Deletes tasks
-- that ended with this status, soft-deleted tasks (deleted), other history (history), the content of messages
-- (messages), or what ended runs remember (steps). Examines a limited number of rows, the oldest first, after the given
-- one, and returns where to continue: null at the end. Never deletes waiting or running tasks. A dry run only counts.
-- Without a task to continue from, it goes on where the last such call stopped, and passes over what those before have
-- kept; once a day it begins at the oldest. Any number of sessions may call it at once; of those calls, one at a time.
-- For holdfast_worker and holdfast_operator. Locks: the mark of the status; outcomes, then deletions, then keys; or
-- contents of messages; without waiting.
create or replace function queues.prune(
  status text, max_tasks integer default 1000, past uuid default null, dry_run boolean default false)
returns table (pruned integer, examined integer, next uuid)
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
  _oldest constant uuid := '00000000-0000-0000-0000-000000000000';
  _goes_on constant boolean := past is null and status <> 'history' and not coalesce(dry_run, false);
  _past uuid := coalesce(past, _oldest);
  _last uuid;
  _old uuid[];
  _ended uuid[];
begin
  perform queues.check_retention(status);
  perform queues.check_number('max_tasks', max_tasks, 1, 10000);
  if status = 'history' then
    examined := queues.prune_history(max_tasks, dry_run, _now);
    pruned := examined;
    return next;
    return;
  end if;
  if _goes_on then
    select m.past into _past from queues.retention_mark m where m.status = prune.status for update skip locked;
    if not found then  -- another session is at it
      pruned := 0;
      examined := 0;
      return next;
      return;
    end if;
  end if;

  if status = 'messages' then
    select m.pruned, m.examined, m.next, _past into pruned, examined, next, _last
    from queues.prune_messages(max_tasks, _past, dry_run, _now) m;
  elsif status = 'steps' then
    select s.pruned, s.examined, s.next, s.last into pruned, examined, next, _last
    from queues.prune_steps(max_tasks, _past, dry_run, _now) s;
  else
    select f.task_ids, f.examined, f.next, f.last into _old, examined, next, _last
    from queues.find_old_tasks(status, max_tasks, _past, _now) f;
  end if;
  if _goes_on then
    update queues.retention_mark m
    set past = case when next is not null then next when m.full_pass_at > _now - interval '1 day' then _last
        else _oldest end,
      full_pass_at = case when next is not null or m.full_pass_at > _now - interval '1 day' then m.full_pass_at
        else _now end
    where m.status = prune.status;
  end if;
  if status in ('messages', 'steps') then
    return next;
    return;
  end if;
  if not coalesce(dry_run, false) and _old <> '{}' then
    _ended := array(
      select o.task_id from queues.outcome o where o.task_id = any (_old) order by o.task_id for update skip locked);
    -- Separate statements, so that they see what was committed before the lock was granted.
    if status = 'deleted' then
      -- A deleted task that has neither an outcome nor parked columns is still running.
      _old := array(
        select d.task_id from queues.deletion d
        where d.task_id = any (_old) and (d.parked_run_at is not null or d.task_id = any (_ended))
        order by d.task_id for update skip locked);
    else
      _old := queues.without_deleted(_ended);
    end if;
    -- Children of a run that has not ended are kept: its current generation reads their results each time it resumes.
    -- The ids are in order, and most tasks are nobody's children: one lookup of the range finds that out for all.
    if exists (select from queues.child c where c.child_id between _old[1] and _old[cardinality(_old)]) then
      _old := array(
        select o.task_id from unnest(_old) o(task_id)
        where (
          select true from queues.child c
          where c.awaited and c.child_id = o.task_id
            and (c.step = '' or c.generation = queues.current_generation(c.parent_id))
            and (select true from queues.outcome p where p.task_id = c.parent_id limit 1) is null limit 1) is null);
    end if;
    if status = 'deleted' then
      perform queues.end_waits(_old);
    end if;
    perform queues.forget_tasks(_old);
  end if;
  pruned := cardinality(_old);
  return next;
end
$$;

-- Deletes old records of queues, lost workers and worker environments, and returns how many. Old means older than the
-- policy for history keeps.
create or replace function queues.prune_history(max_rows integer, dry_run boolean, now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _cutoff constant timestamptz := prune_history.now - (
    select r.keep from queues.retention r where r.status = 'history');
  _acts constant bigint[] := array(
    select a.act_id from queues.act a where a.queue is not null and a.occurred_at < _cutoff
    order by a.queue, a.act_id limit max_rows for update skip locked);
  _losses constant text[] := array(
    select l.worker_id from queues.loss l where l.lost_at < _cutoff
    order by l.worker_id limit max_rows - cardinality(_acts) for update skip locked);
  _environments constant text[] := array(
    select e.worker_id from queues.worker_environment e where e.recorded_at < _cutoff
      and (select true from queues.worker w where w.worker_id = e.worker_id limit 1) is null
    order by e.worker_id limit max_rows - cardinality(_acts) - cardinality(_losses) for update skip locked);
begin
  if not coalesce(dry_run, false) then
    perform set_config('holdfast.retention', 'on', true);
    delete from queues.act a where a.act_id = any (_acts);
    delete from queues.loss l where l.worker_id = any (_losses) and l.lost_at < _cutoff;
    delete from queues.worker_environment e where e.worker_id = any (_environments);
    perform set_config('holdfast.retention', _retention, true);
  end if;
  return cardinality(_acts) + cardinality(_losses) + cardinality(_environments);
end
$$;

-- Removes what runs remember that ended longer ago than the policy for steps keeps: steps, failed tries, signals and
-- started children, and the same of generations that have ended so (prune_generations). One step of the kind removed
-- stays, so that a retry or a fork cannot run the others again. Examines a limited number of runs, the oldest first,
-- after the given one, and returns where to continue: null at the end. Never touches a generation that has not ended.
-- Also returns from where the next pass has to look.
-- Internal: called by prune. Locks: outcomes, without waiting.
create or replace function queues.prune_steps(
  max_runs integer, past uuid, dry_run boolean, now timestamptz, out pruned integer, out examined integer,
  out next uuid, out last uuid)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _cutoff constant timestamptz := prune_steps.now - (
    select min(r.keep) from queues.retention r where r.status = 'steps');
  _looked uuid[];
  _old uuid[];
  _generations integer;
begin
  pruned := 0;
  examined := 0;
  last := past;
  if _cutoff is null then
    return;
  end if;
  -- A dry run counts them once: they are not looked for along the runs.
  _generations := case when not coalesce(dry_run, false) then queues.prune_generations(max_runs, false, prune_steps.now)
    when coalesce(past, '00000000-0000-0000-0000-000000000000') = '00000000-0000-0000-0000-000000000000'
      then queues.prune_generations(100000, true, prune_steps.now)
    else 0 end;
  with recursive run as (
    (select s.task_id from queues.step s
     where s.task_id > coalesce(past, '00000000-0000-0000-0000-000000000000') and s.kind <> 'r'
     order by s.task_id limit 1)
    union all
    select (
      select s.task_id from queues.step s where s.task_id > r.task_id and s.kind <> 'r' order by s.task_id limit 1)
    from run r where r.task_id is not null)
  select array_agg(r.task_id) into _looked from (select r.task_id from run r limit max_runs) r
  where r.task_id is not null;
  examined := coalesce(cardinality(_looked), 0);
  -- The rows that stay of removed runs are not looked at again. A run that takes more than an hour may be passed over.
  last := coalesce((
    select r.task_id from unnest(_looked) r(task_id)
    where (select t.created_at from queues.task t where t.task_id = r.task_id) < _cutoff - interval '1 hour'
    order by r.task_id desc limit 1), case when examined = 0 then (
      select s.task_id from queues.step s order by s.task_id desc limit 1) end, past);
  _old := array(
    select r.task_id from unnest(_looked) r(task_id)
    where (select o.finished_at from queues.outcome o where o.task_id = r.task_id) < _cutoff);
  _old := queues.past_retention('steps', _old, prune_steps.now);
  if not coalesce(dry_run, false) and _old <> '{}' then
    -- A run that is retried meanwhile has no outcome any more.
    _old := array(
      select o.task_id from queues.outcome o where o.task_id = any (_old) and o.finished_at < _cutoff
      order by o.task_id for update skip locked);
    perform set_config('holdfast.retention', 'on', true);
    with gone as (
      delete from queues.step s where s.task_id = any (_old) returning s.task_id)
    insert into queues.step (token, ended_at, task_id, generation, number, took_ms, tries, kind, name)
    select 0, prune_steps.now, g.task_id, queues.current_generation(g.task_id), 0, 0, 1, 'r',
      format('%s steps', count(*))
    from gone g group by g.task_id;
    delete from queues.error e where e.task_id = any (_old) and e.step is not null;
    delete from queues.signal s where s.task_id = any (_old);
    delete from queues.child c where c.parent_id = any (_old) and c.step <> '';
    perform set_config('holdfast.retention', _retention, true);
  end if;
  pruned := coalesce(cardinality(_old), 0) + _generations;
  next := case when examined = max_runs then _looked[max_runs] end;
  -- Ids grow with time: a run that was enqueued later than that cannot have ended earlier.
  if (select t.created_at from queues.task t where t.task_id = next) > _cutoff then
    next := null;
  end if;
  if _generations = max_runs and not coalesce(dry_run, false) then  -- there may be more
    next := coalesce(next, last, '00000000-0000-0000-0000-000000000000');
  end if;
end
$$;

-- Removes what generations remembered that ended longer ago than the policy for steps keeps: their steps, the signals
-- that those took, failed tries and attempts, started children, and what their workers reported. Their runs may go on:
-- so a run without an end does not grow without one. Of each run, the rows of the first generation and of the one
-- before the current stay. Removes a limited number, the oldest first, and returns how many.
-- Internal: called by prune_steps. Locks: rows of queues.generation, without waiting.
create or replace function queues.prune_generations(max_generations integer, dry_run boolean, now timestamptz)
returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _cutoff constant timestamptz := prune_generations.now - (
    select min(r.keep) from queues.retention r where r.status = 'steps');
  _ids uuid[];
  _numbers integer[];
begin
  select array_agg(g.task_id), array_agg(g.number) into _ids, _numbers
  from (
    select g.task_id, g.number from queues.generation g
    cross join lateral (select t.type from queues.task t where t.task_id = g.task_id offset 0) t
    where g.pruned is null and g.ended_at < _cutoff and g.ended_at < prune_generations.now - (
      select r.keep from queues.retention r
      where r.status = 'steps' and starts_with(t.type, r.type_prefix)
      order by length(r.type_prefix) desc limit 1)
    order by g.ended_at limit max_generations for update of g skip locked) g;
  if _ids is null or coalesce(dry_run, false) then
    return coalesce(cardinality(_ids), 0);
  end if;

  perform set_config('holdfast.retention', 'on', true);
  with old as (
    select o.task_id, o.number from unnest(_ids, _numbers) o(task_id, number)),
  gone as (
    delete from queues.step s using old o
    where s.task_id = any (_ids) and s.task_id = o.task_id and s.generation = o.number returning s.signal_id)
  delete from queues.signal s
  where s.signal_id = any (array(select g.signal_id from gone g where g.signal_id is not null));
  delete from queues.error e using unnest(_ids, _numbers) o(task_id, number)
  where e.task_id = any (_ids) and e.task_id = o.task_id and e.generation = o.number;
  delete from queues.child c using unnest(_ids, _numbers) o(task_id, number)
  where c.parent_id = any (_ids) and c.parent_id = o.task_id and c.generation = o.number and c.step <> '';
  with gone as (
    delete from queues.generation g using unnest(_ids, _numbers) o(task_id, number)
    where g.task_id = any (_ids) and g.task_id = o.task_id and g.number = o.number returning g.*),
  kept as (
    insert into queues.generation (task_id, ended_at, number, pruned, payload)
    select g.task_id, g.ended_at, g.number, true, g.payload from gone g
    where g.number in (1, queues.current_generation(g.task_id) - 1))
  delete from queues.act a using (
    select g.task_id, max(g.ended_at) as ended_at from gone g group by g.task_id) g
  where a.task_id = any (_ids) and a.task_id = g.task_id and a.occurred_at <= g.ended_at
    -- What people did stays: a deadline counts from the last retry.
    and a.act in ('released', 'snoozed', 'suspended', 'continued');
  -- Those that stayed because they came before the current generation, which has ended since.
  delete from queues.generation g
  where g.task_id = any (_ids) and g.pruned and g.number > 1 and g.number < queues.current_generation(g.task_id) - 1;
  perform set_config('holdfast.retention', 'off', true);
  return cardinality(_ids);
end
$$;

-- Returns those of the tasks that the policy for their type no longer keeps.
-- Internal: called by find_old_tasks if there are policies for some types.
create or replace function queues.past_retention(status text, task_ids uuid[], now timestamptz)
returns uuid[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select t.task_id
    from unnest(past_retention.task_ids) old(task_id)
    cross join lateral (select t.task_id, t.type from queues.task t where t.task_id = old.task_id offset 0) t
    cross join lateral (
      select case past_retention.status
        when 'deleted' then (select d.deleted_at from queues.deletion d where d.task_id = t.task_id)
        else (select o.finished_at from queues.outcome o where o.task_id = t.task_id) end as at) ended
    where ended.at < past_retention.now - (
      select r.keep from queues.retention r
      where r.status = past_retention.status and starts_with(t.type, r.type_prefix)
      order by length(r.type_prefix) desc limit 1))
$$;

-- Finds tasks that the policy no longer keeps, among the oldest of a status or of the soft-deleted ones. Examines
-- max_tasks tasks at a time, until it has found some or has examined five times as many. Also returns how many it
-- examined, where to continue (null when the rest is too young), and where the last batch began.
-- Internal: called by prune and health_of_retention.
create or replace function queues.find_old_tasks(
  status text, max_tasks integer, past uuid, now timestamptz, out task_ids uuid[], out examined integer, out next uuid,
  out last uuid)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _cutoff constant timestamptz := find_old_tasks.now - (
    select min(r.keep) from queues.retention r where r.status = find_old_tasks.status);
  _by_type constant boolean := exists (
    select from queues.retention r where r.status = find_old_tasks.status and r.type_prefix <> '');
  _looked uuid[];
begin
  task_ids := '{}';
  examined := 0;
  last := past;
  next := case when _cutoff is not null then past end;
  while next is not null and task_ids = '{}' and examined < 5 * max_tasks loop
    last := next;
    -- Ids grow with time, so a walk along them finds the oldest tasks first and needs no additional index.
    if status = 'deleted' then
      select array_agg(d.task_id), array_agg(d.task_id) filter (where d.deleted_at < _cutoff
        -- A deleted task that has neither an outcome nor parked columns is still running.
        and (d.parked_run_at is not null or (select true from queues.outcome o where o.task_id = d.task_id limit 1)))
      into _looked, task_ids
      from (select d.* from queues.deletion d where d.task_id > next order by d.task_id limit max_tasks) d;
    elsif status = 'succeeded' then
      -- Of any status: a limit on one status would not limit how many rows are read.
      select array_agg(o.task_id),
        array_agg(o.task_id) filter (where o.status = find_old_tasks.status and o.finished_at < _cutoff)
      into _looked, task_ids
      from (
        select o.task_id, o.status, o.finished_at from queues.outcome o
        where o.task_id > next order by o.task_id limit max_tasks) o;
    else
      select array_agg(o.task_id), array_agg(o.task_id) filter (where o.finished_at < _cutoff)
      into _looked, task_ids
      from (
        select o.task_id, o.finished_at from queues.outcome o
        where o.status = find_old_tasks.status and o.status <> 'succeeded' and o.task_id > next
        order by o.task_id limit max_tasks) o;
    end if;
    task_ids := coalesce(task_ids, '{}');
    if task_ids <> '{}' and _by_type then
      task_ids := queues.past_retention(status, task_ids, find_old_tasks.now);
    end if;
    if task_ids <> '{}' and status <> 'deleted' then
      task_ids := queues.without_deleted(task_ids);
    end if;
    examined := examined + coalesce(cardinality(_looked), 0);
    next := case when cardinality(_looked) = max_tasks then _looked[max_tasks] end;
    if (select t.created_at from queues.task t where t.task_id = next) > _cutoff then
      next := null;
    end if;
  end loop;
end
$$;

-- Returns those of the tasks that are not soft-deleted. The ids are in order, so that one lookup usually suffices.
create or replace function queues.without_deleted(task_ids uuid[])
returns uuid[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if exists (
    select from queues.deletion d where d.task_id between task_ids[1] and task_ids[cardinality(task_ids)]) then
    return array(
      select t.task_id from unnest(task_ids) t(task_id)
      where (select true from queues.deletion d where d.task_id = t.task_id limit 1) is null);
  end if;
  return task_ids;
end
$$;

-- Deletes tasks and everything that belongs to them. Every table with rows per task must be listed here. The ids are in
-- order: most tasks have nothing in most of these tables, and one lookup of the range finds that out for all of them.
-- Internal: called by prune, which has locked their outcomes and deletions. Locks: keys, which no other transaction can
-- hold meanwhile.
create or replace function queues.forget_tasks(task_ids uuid[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _first constant uuid := task_ids[1];
  _last constant uuid := task_ids[cardinality(task_ids)];
begin
  delete from queues.outcome o where o.task_id = any (task_ids);
  if exists (select from queues.deletion d where d.task_id between _first and _last) then
    delete from queues.deletion d where d.task_id = any (task_ids);
  end if;
  if exists (select from queues.wait w where w.task_id between _first and _last) then
    delete from queues.wait w where w.task_id = any (task_ids);
  end if;
  if exists (select from queues.chore c where c.task_id between _first and _last) then
    delete from queues.chore c where c.task_id = any (task_ids);
  end if;
  if exists (select from queues.wait w where w.on_task between _first and _last) then
    perform queues.mark_joins(task_ids);
  end if;
  if exists (select from queues.unique_task u where u.task_id between _first and _last) then
    delete from queues.unique_task u where u.task_id = any (task_ids);
  end if;
  perform set_config('holdfast.retention', 'on', true);
  if exists (select from queues.step s where s.task_id between _first and _last) then
    delete from queues.step s where s.task_id = any (task_ids);
  end if;
  if exists (select from queues.signal s where s.task_id between _first and _last) then
    delete from queues.signal s where s.task_id = any (task_ids);
  end if;
  if exists (select from queues.generation g where g.task_id between _first and _last) then
    delete from queues.generation g where g.task_id = any (task_ids);
  end if;
  if exists (select from queues.child c where c.parent_id between _first and _last) then
    delete from queues.child c where c.parent_id = any (task_ids);
  end if;
  if exists (select from queues.error e where e.task_id between _first and _last) then
    delete from queues.error e where e.task_id = any (task_ids);
  end if;
  if exists (select from queues.act a where a.task_id between _first and _last) then
    delete from queues.act a where a.task_id = any (task_ids);
  end if;
  with forgotten as (
    delete from queues.task t where t.task_id = any (task_ids)
    returning t.type, t.idempotency_key, t.namespace, t.task_id)
  delete from queues.task_key k using (select f.* from forgotten f where f.idempotency_key is not null offset 0) f
  where k.type = f.type and k.idempotency_key = f.idempotency_key and k.namespace = f.namespace
    and k.task_id = f.task_id;
  perform set_config('holdfast.retention', _retention, true);
end
$$;

-- Sets how long tasks with this status and type prefix are kept; null means forever. The status deleted means
-- soft-deleted tasks. If several prefixes match, the longest one applies. The status history means records of queues
-- and lost workers, messages means the content of e-mail and text messages; these have no types. The status steps
-- means what runs remember, counted from their end.
-- For holdfast_operator. Locks: the policy's row, then the mark of the status.
create or replace function queues.set_retention(status text, keep interval, type_prefix text default '')
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform queues.check_retention(status);
  if type_prefix is null or length(type_prefix) > 200 or status in ('history', 'messages') and type_prefix <> '' then
    raise exception using errcode = 'QF400', message = case
      when status in ('history', 'messages') then format('%s has no types, and so no type_prefix', status)
      else 'type_prefix must be text of at most 200 characters' end;
  elsif keep not between interval '1 minute' and interval '1000 years' then
    raise exception using errcode = 'QF400', message = 'keep must be at least 1 minute',
      hint = 'Repeated reports and waiting clients must still find the task. Null keeps it forever.';
  end if;
  insert into queues.retention as r (status, type_prefix, keep, changed_at, changed_by)
  values (status, type_prefix, keep, queues.clock(), session_user)
  on conflict (status, type_prefix) do update
  set keep = excluded.keep, changed_at = excluded.changed_at, changed_by = excluded.changed_by;
  -- What was kept under the former policies is looked at again.
  update queues.retention_mark m set past = '00000000-0000-0000-0000-000000000000'
  where m.status = set_retention.status;
end
$$;

-- Trigger function that refuses every update, delete and truncate of facts, even by the owner. For tables of a business
-- process: create trigger … before update or delete or truncate … for each statement, enabled always.
-- For holdfast_process.
create or replace function queues.refuse_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'QF412',
    message = format('%I.%I is append-only: %s is refused', tg_table_schema, tg_table_name, lower(tg_op)),
    hint = 'Insert a new fact instead.';
end
$$;
