-- Locks the first due rows in lanes of one priority, some of which are limited, and returns their ctids.
-- Internal: called by claim. Locks: the limits of these lanes, then ready rows, without waiting.
create or replace function queues.lock_mixed(
  lanes bigint[], from_run_at timestamptz[], from_task_id uuid[], limited bigint[], due timestamptz, max_tasks integer,
  before tid[])
returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _unlimited tid[];
  _within tid[];
begin
  if lanes is not null then
    _unlimited := queues.lock_ready(lanes, from_run_at, from_task_id, due, max_tasks);
  end if;
  _within := queues.lock_within_limits(limited, due, max_tasks, before);
  if _unlimited is null or _within = '{}' then
    return coalesce(_unlimited, _within);
  end if;
  return array(
    select r.ctid from queues.ready r where r.ctid = any (_unlimited || _within)
    order by r.run_at, r.task_id limit max_tasks);
end
$$;

comment on function queues.lock_mixed(bigint[], timestamptz[], uuid[], bigint[], timestamptz, integer, tid[]) is
  'Locks the first due rows in lanes of one priority, some of which are limited, and returns their ctids.';
