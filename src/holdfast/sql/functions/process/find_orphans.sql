-- Marks unfinished processes whose supervisor is missing (orphaned) or fails (failing). Examines the processes after
-- the given one, in order, and returns where to continue, or null at the end. A supervisor is missing if its task was
-- cancelled, failed, was deleted or no longer exists. Nudges a supervisor whose awaited task has ended without a
-- notification.
-- For holdfast_worker. Locks: the rows that it marks, then ready rows of supervisors, without waiting.
create or replace function queues.find_orphans(
  after_process text default null, after_process_id bigint default null, max_processes integer default 1000,
  out process text, out process_id bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _nudged uuid[];
begin
  if max_processes is null or max_processes not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_processes must be between 1 and 10000';
  end if;
  with looked as materialized (
    select i.process, i.process_id, i.task_id, i.trouble, case
        when waiting.attempt is null and held.attempt is null then 'orphaned'
        when coalesce(waiting.attempt, held.attempt - 1) > 0 then 'failing' end as found,
      case when i.awaited_task_id is not null and waiting.run_at > _now
        and not exists (select from queues.ready r where r.task_id = i.awaited_task_id)
        and not exists (select from queues.lease l where l.task_id = i.awaited_task_id) then i.task_id end as nudged
    from (
      select i.process, i.process_id, i.task_id, i.awaited_task_id, i.trouble from queues.process_instance i
      where i.ended_at is null
        and (i.process, i.process_id) > (coalesce(after_process, ''), coalesce(after_process_id, 0))
      order by i.process, i.process_id limit max_processes) i
    left join queues.ready waiting on waiting.task_id = i.task_id
    left join queues.lease held on held.task_id = i.task_id),
  changed as (
    select i.process, i.process_id, i.task_id, l.found from looked l
    join queues.process_instance i on i.process = l.process and i.process_id = l.process_id and i.task_id = l.task_id
    where l.found is distinct from l.trouble for update of i skip locked),
  marked as (
    update queues.process_instance i set trouble = c.found, troubled_at = case when c.found is not null then _now end
    from changed c where i.process = c.process and i.process_id = c.process_id and i.task_id = c.task_id
      and i.ended_at is null)
  select (array_agg(l.process order by l.process desc, l.process_id desc))[1],
    (array_agg(l.process_id order by l.process desc, l.process_id desc))[1],
    array_agg(l.nudged) filter (where l.nudged is not null)
  into process, process_id, _nudged from looked l having count(*) = max_processes or count(l.nudged) > 0;
  perform queues.nudge_waiting(_nudged, _now);
end
$$;

comment on function queues.find_orphans(text, bigint, integer) is
  'Marks unfinished processes whose supervisor is missing (orphaned) or fails (failing).';
