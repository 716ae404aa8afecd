-- Finds tasks that the policy no longer keeps, among the oldest of a status or of the soft-deleted ones. Also returns
-- how many it examined and where to continue: null when the rest is too young.
-- Internal: called by prune.
create or replace function queues.find_old_tasks(
  status text, max_tasks integer, past uuid, now timestamptz, out task_ids uuid[], out examined integer, out next uuid)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _cutoff constant timestamptz := find_old_tasks.now - (select min(r.keep) from queues.retention r where r.status = find_old_tasks.status);
  _looked uuid[];
  _old uuid[];
begin
  examined := 0;
  task_ids := '{}';
  if _cutoff is null then
    return;
  end if;
  -- Ids grow with time, so a walk along them finds the oldest tasks first and needs no additional index.
  if status = 'deleted' then
    _looked := array(
      select d.task_id from queues.deletion d where d.task_id > find_old_tasks.past order by d.task_id limit 5 * max_tasks);
    _old := array(
      select d.task_id from unnest(_looked) l(task_id)
      cross join lateral (select * from queues.deletion d where d.task_id = l.task_id and d.deleted_at < _cutoff
        -- A deleted task that has neither an outcome nor parked columns is still running.
        and (d.parked_run_at is not null or (select true from queues.outcome o where o.task_id = d.task_id limit 1)) offset 0) d
      cross join lateral (select t.type from queues.task t where t.task_id = d.task_id offset 0) t
      where d.deleted_at < find_old_tasks.now - (
        select r.keep from queues.retention r
        where r.status = find_old_tasks.status and starts_with(t.type, r.type_prefix)
        order by length(r.type_prefix) desc limit 1));
  elsif status = 'succeeded' then
    -- Of any status: a limit on one status would not limit how many rows are read.
    _looked := array(
      select o.task_id from queues.outcome o where o.task_id > find_old_tasks.past order by o.task_id limit 5 * max_tasks);
  else
    _looked := array(
      select o.task_id from queues.outcome o
      where o.status = find_old_tasks.status and o.status <> 'succeeded' and o.task_id > find_old_tasks.past
      order by o.task_id limit 5 * max_tasks);
  end if;
  _old := coalesce(_old, array(
    select o.task_id from unnest(_looked) l(task_id)
    cross join lateral (
      select * from queues.outcome o
      where o.task_id = l.task_id and o.status = find_old_tasks.status and o.finished_at < _cutoff offset 0) o
    cross join lateral (select t.type from queues.task t where t.task_id = o.task_id offset 0) t
    where o.finished_at < find_old_tasks.now - (
        select r.keep from queues.retention r
        where r.status = find_old_tasks.status and starts_with(t.type, r.type_prefix)
        order by length(r.type_prefix) desc limit 1)
      and (select true from queues.deletion d where d.task_id = o.task_id limit 1) is null));
  task_ids := _old[:max_tasks];
  examined := cardinality(_looked);
  if cardinality(_old) > max_tasks then
    next := task_ids[max_tasks];
  elsif examined = 5 * max_tasks then
    next := _looked[examined];
    if (select t.created_at from queues.task t where t.task_id = next) > _cutoff then
      next := null;
    end if;
  end if;
end
$$;

comment on function queues.find_old_tasks(text, integer, uuid, timestamptz) is
  'Finds tasks that the policy no longer keeps, among the oldest of a status or of the soft-deleted ones.';
