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

comment on function queues.prune_steps(integer, uuid, boolean, timestamptz) is
  'Removes what runs remember that ended longer ago than the policy for steps keeps.';
