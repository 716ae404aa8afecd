-- Deletes up to max_firings decisions of schedules older than a week, and returns how many. A schedule's last firing is
-- also in its own row.
-- For holdfast_worker. Locks: firings, without waiting.
create or replace function queues.prune_firings(max_firings integer default 1000)
returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _retention constant text := coalesce(current_setting('holdfast.retention', true), '');
  _before constant timestamptz := queues.clock() - interval '7 days';
  _removed integer;
begin
  if max_firings is null or max_firings not between 1 and 10000 then
    raise exception using errcode = 'QF400', message = 'max_firings must be between 1 and 10000';
  end if;
  perform set_config('holdfast.retention', 'on', true);
  with old as materialized (
    select f.schedule, f.namespace, f.nominal_at from queues.schedule_firing f
    where f.decided_at < _before order by f.decided_at limit max_firings for update skip locked)
  delete from queues.schedule_firing f using old where f.schedule = old.schedule and f.namespace = old.namespace
    and f.nominal_at = old.nominal_at;
  get diagnostics _removed = row_count;
  perform set_config('holdfast.retention', _retention, true);
  return _removed;
end
$$;

comment on function queues.prune_firings(integer) is
  'Deletes up to max_firings decisions of schedules older than a week, and returns how many.';
