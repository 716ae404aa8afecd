-- Returns the tasks that a worker holds, those that run for the longest time first. Reads the leases of all workers,
-- which are as many as tasks are running.
-- For holdfast_reader. Locks: nothing.
create or replace function queues.held_by(worker_id text, max_tasks integer default 100)
returns table (task_id uuid, claimed_at timestamptz, started_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
  if max_tasks is null or max_tasks not between 1 and 1000 then
    raise exception using errcode = 'QF400', message = 'max_tasks must be between 1 and 1000';
  end if;
  return query
  select l.task_id, l.claimed_at, l.started_at from queues.lease l
  where l.worker_id = held_by.worker_id
  order by l.started_at, l.claimed_at, l.task_id limit max_tasks;
end
$$;

comment on function queues.held_by(text, integer) is
  'Returns the tasks that a worker holds, those that run for the longest time first.';
