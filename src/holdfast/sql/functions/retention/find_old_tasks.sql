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

comment on function queues.find_old_tasks(text, integer, uuid, timestamptz) is
  'Finds tasks that the policy no longer keeps, among the oldest of a status or of the soft-deleted ones.';
