-- Returns instances of a process, the highest id first, or of all processes, newest first: all of them, those that have
-- not ended (unfinished), or those in trouble. `before` continues after the instance with this id.
-- For holdfast_reader. Locks: nothing.
create or replace function queues.list_process_instances(
  of_process text default null, state text default null, before bigint default null,
  max_instances integer default 50)
returns table (
  process text, process_id bigint, status text, decision text, reason text, created_at timestamptz, created_by text,
  updated_at timestamptz, next_run_at timestamptz, task_id uuid, awaited_task_id uuid, trouble text,
  troubled_at timestamptz, repairs integer, repaired_at timestamptz, ended_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  if max_instances is null or max_instances not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_instances must be between 1 and 1000';
  elsif before is not null and of_process is null then
    raise exception using errcode = 'QF400', message = 'before needs of_process: ids are those of one process';
  end if;
  if state not in ('unfinished', 'trouble') then
    raise exception using errcode = 'QF400', message = 'state must be unfinished or trouble';
  end if;
  return query
  select i.process, i.process_id, queues.process_status_of(i.decision, i.ended_at), i.decision, i.reason,
    i.created_at, i.created_by, i.updated_at, i.next_run_at, i.task_id, i.awaited_task_id, i.trouble, i.troubled_at,
    i.repairs, i.repaired_at, i.ended_at
  from queues.process p
  -- One query per state, each with the condition of its index. Only the one that is asked for runs.
  cross join lateral (
    (select i.* from queues.process_instance i
    where list_process_instances.state is null
      and i.process = p.process and (before is null or i.process_id < before)
    order by i.process desc, i.process_id desc limit max_instances)
    union all
    (select i.* from queues.process_instance i
    where list_process_instances.state = 'unfinished' and i.ended_at is null
      and i.process = p.process and (before is null or i.process_id < before)
    order by i.process desc, i.process_id desc limit max_instances)
    union all
    (select i.* from queues.process_instance i
    where list_process_instances.state = 'trouble' and i.trouble is not null
      and i.process = p.process and (before is null or i.process_id < before)
    order by i.process desc, i.process_id desc limit max_instances)) i
  where of_process is null or p.process = of_process
  -- Of one process by the ids by which it is paged: an instance may be created before one that has a lower id.
  order by case when of_process is null then i.created_at end desc, i.process, i.process_id desc limit max_instances;
end
$$;

comment on function queues.list_process_instances(text, text, bigint, integer) is
  'Returns instances of a process, newest first, or of all processes.';
