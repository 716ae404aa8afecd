-- Returns whether a process has ended or has a task that runs its supervisor next. Then there is nothing to repair. For
-- the repair function of a process, which checks again after it has locked the root.
-- For holdfast_process. Locks: nothing.
create or replace function queues.is_supervised(process text, process_id bigint)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from queues.process_instance i
    where i.process = is_supervised.process and i.process_id = is_supervised.process_id
      and (i.ended_at is not null or exists (select from queues.ready r where r.task_id = i.task_id)
        or exists (select from queues.lease l where l.task_id = i.task_id)))
$$;

comment on function queues.is_supervised(text, bigint) is
  'Returns whether a process has ended or has a task that runs its supervisor next.';
