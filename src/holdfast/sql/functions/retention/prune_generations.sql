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

comment on function queues.prune_generations(integer, boolean, timestamptz) is
  'Removes what generations of runs remembered that ended longer ago than the policy for steps keeps.';
