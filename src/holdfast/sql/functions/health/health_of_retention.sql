-- Checks whether retention keeps up: whether tasks are left that it should have deleted an hour ago. Examines at most
-- 5,000 tasks of each status, from where retention has come.
-- Internal: called by health.
create or replace function queues.health_of_retention(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _start uuid;
  _status text;
  _late integer;
  _very_late integer;
begin
  foreach _status in array array['succeeded', 'failed', 'dead_letter', 'cancelled', 'deleted'] loop
    -- A policy that has just changed may have made many tasks too old at once.
    continue when exists (
      select from queues.retention r
      where r.status = _status and r.changed_at > health_of_retention.now - interval '1 hour');
    _start := coalesce((
      select m.past from queues.retention_mark m where m.status = _status), '00000000-0000-0000-0000-000000000000');
    _late := (
      select cardinality(f.task_ids)
      from queues.find_old_tasks(_status, 1000, _start, health_of_retention.now - interval '1 hour') f);
    continue when _late = 0;
    _very_late := (
      select cardinality(f.task_ids)
      from queues.find_old_tasks(_status, 1000, _start, health_of_retention.now - interval '1 day') f);
    return next row('retention', case when _very_late > 0 then 'red' else 'amber' end, _status, _late,
      format('%s%s %s task%s should have been deleted more than %s ago', _late,
        case when _late = 1000 then ' or more' else '' end, _status, case _late when 1 then '' else 's' end,
        case when _very_late > 0 then 'a day' else 'an hour' end),
      'The leader deletes them: check whether there is one, and look for duty_failed in its log. '
      'holdfast prune deletes them at once.', null)::queues.health_line;
  end loop;
end
$$;

comment on function queues.health_of_retention(timestamptz) is
  'Checks whether retention keeps up: whether tasks are left that it should have deleted an hour ago.';
