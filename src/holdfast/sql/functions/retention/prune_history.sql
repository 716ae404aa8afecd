-- Deletes old records of queues, lost workers and worker environments, and returns how many. Old means older than the
-- policy for history keeps. Also deletes rows of queues.reusable that no task uses.
-- Internal: called by prune.
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
  -- A row that find_reusable_run locked and that got no task is unused: it is deleted whatever its age.
  _unused constant queues.reusable[] := array(
    select r from queues.reusable r where r.task_id is null
    order by r.task_id limit max_rows - cardinality(_acts) - cardinality(_losses) - cardinality(_environments)
    for update skip locked);
begin
  if not coalesce(dry_run, false) then
    perform set_config('holdfast.retention', 'on', true);
    delete from queues.act a where a.act_id = any (_acts);
    delete from queues.loss l where l.worker_id = any (_losses) and l.lost_at < _cutoff;
    delete from queues.worker_environment e where e.worker_id = any (_environments);
    delete from queues.reusable r using unnest(_unused) u where r.spec_hash = u.spec_hash and r.namespace = u.namespace;
    perform set_config('holdfast.retention', _retention, true);
  end if;
  return cardinality(_acts) + cardinality(_losses) + cardinality(_environments) + cardinality(_unused);
end
$$;

comment on function queues.prune_history(integer, boolean, timestamptz) is
  'Deletes old records of queues, lost workers and worker environments, and returns how many.';
