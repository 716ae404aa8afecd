-- Ends the worker's term now, so that another one may lead at once, and returns whether it led. The number of the term
-- stays, because it only grows.
-- For holdfast_worker. Locks: the leadership.
create or replace function queues.resign(worker_id text)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  update queues.leadership l set leader_until = _now - interval '1 microsecond'
  where l.worker_id = resign.worker_id and l.leader_until >= _now;
  return found;
end
$$;

comment on function queues.resign(text) is
  'Ends the worker''s term now, so that another one may lead at once, and returns whether it led.';
