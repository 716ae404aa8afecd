-- Returns how long until a schedule must be decided on: zero or less if one is due, null if there is none.
-- For holdfast_worker. Locks: none.
create or replace function queues.next_firing()
returns interval
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  _now constant timestamptz := queues.clock();
  _next timestamptz;
begin
  if exists (select from queues.due_schedules(1)) then
    return interval '0';
  end if;
  if not queues.is_first_shard() then
    return null;
  end if;
  select min(f.next_at) into _next from queues.namespaces_with_schedules() o(namespace)
  cross join lateral (
    select s.next_at from queues.schedule s
    where s.paused_at is null and s.orphaned_at is null and s.namespace = o.namespace and s.next_at > _now
    order by s.next_at limit 1) f;
  return case when isfinite(_next) then _next - _now end;
end
$$;

comment on function queues.next_firing() is
  'Returns how long until a schedule must be decided on: zero or less if one is due, null if there is none.';
