-- Lets the supervisor of a process run now, and returns whether it waited for a later time. The act is recorded with
-- the task of the supervisor.
-- For holdfast_client (processes of its namespace) and holdfast_operator. Locks: the ready row of the supervisor, by
-- lock_task.
create or replace function queues.nudge_process(process text, process_id bigint, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _durable constant text := queues.commit_to_disk();
  _now constant timestamptz := queues.clock();
  _instance queues.process_instance;
  _looked uuid;
  _found record;
begin
  -- Looks again if the supervisor has run meanwhile, and another task runs it next.
  for _try in 1..10 loop
    select i.* into _instance from queues.process_instance i
    where i.process = nudge_process.process and i.process_id = nudge_process.process_id
      and (queues.has_role('operator') or i.namespace = queues.namespace());
    if not found then
      raise exception using errcode = 'QF404', message = format('there is no %s %s', coalesce(process, 'process'),
          coalesce(process_id::text, 'null')),
        hint = 'It may belong to another namespace.';
    elsif _instance.ended_at is not null then
      raise exception using errcode = 'QF412', message = format('%s %s has ended', process, process_id);
    end if;
    exit when _instance.task_id = _looked;
    _looked := _instance.task_id;
    select l.* into _found from queues.lock_task(_looked, array['ready']) l;
    if _found.place = 'lease' or _found.place = 'ready' and _found.run_at <= _now then
      return false;
    elsif _found.place = 'ready' then
      perform queues.move_waiting(_looked, _now, concat_ws(': ', 'nudged', reason), _now);
      return true;
    end if;
  end loop;
  raise exception using errcode = 'QF412', message = format('%s %s has no supervisor', process, process_id),
    hint = 'The leader enqueues a new one.';
end
$$;

comment on function queues.nudge_process(text, bigint, text) is
  'Lets the supervisor of a process run now, and returns whether it waited for a later time.';
