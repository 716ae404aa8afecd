-- Checks schedules that are late, invalid, paused or orphaned, or that do not fire because they are not on the first
-- shard.
-- Internal: called by health.
create or replace function queues.health_of_schedules(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if not queues.is_first_shard() then
    return query
    select 'misplaced_schedule', 'amber', s.name, extract(epoch from now - s.created_at)::double precision,
      format('schedule %s of namespace %s is on shard %s and does not fire: schedules are on the first shard', s.name,
        s.namespace, h.shard_name),
      format('Remove it with the address of %s: holdfast schedules remove %s --namespace %L --database-url …',
        h.shard_name, s.name, s.namespace), null::text
    from queues.schedule s cross join queues.shard h
    order by s.name, s.namespace limit 100;
    return;
  end if;
  return query
  select 'late_schedule', queues.level_of(late.seconds, 30, 300), s.name, late.seconds,
    format('schedule %s of namespace %s should have fired %s ago', s.name, s.namespace,
      queues.format_duration(late.seconds)),
    'The leader fires it: check whether there is a leader (holdfast workers), and look for duty_failed in its log.',
    null
  from queues.schedule s
  cross join lateral (
    select extract(epoch from now - coalesce(s.next_at, s.plan_after))::double precision as seconds
    where coalesce(s.next_at, s.plan_after) <= now - interval '10 seconds') late
  where s.paused_at is null and s.orphaned_at is null
  order by late.seconds desc limit 50;

  return query
  select case when s.orphaned_at is not null then 'orphaned_schedule'
    when s.paused_at is not null then 'paused_schedule'
      else 'broken_schedule' end,
    case when s.orphaned_at is null and s.paused_at is null then 'red' else 'amber' end, s.name,
    extract(epoch from now - coalesce(s.orphaned_at, s.paused_at, s.decided_at))::double precision,
    case when s.orphaned_at is not null
      then format('schedule %s of namespace %s is no longer in the code of %s, and does not fire', s.name,
        s.namespace, s.declared_by)
      when s.paused_at is not null then format('schedule %s of namespace %s was paused by %s%s', s.name, s.namespace,
        s.paused_by, coalesce(' because: ' || s.pause_reason, ''))
      else format('schedule %s of namespace %s does not fire', s.name, s.namespace) end,
    case when s.orphaned_at is not null
      then format('If it is not needed: holdfast schedules remove %s --namespace %L', s.name, s.namespace)
      when s.paused_at is not null then format('To resume: holdfast schedules resume %s --namespace %L', s.name,
        s.namespace)
      else 'Fix it in the code, or remove it and add it again.' end,
    case when s.orphaned_at is null and s.paused_at is null then left(s.problem, 200) end
  from queues.schedule s
  where s.orphaned_at is not null or s.paused_at is not null or s.problem is not null
  order by s.name, s.namespace limit 100;

  return query
  select 'repeated_schedule', 'amber', s.name, count(*)::double precision,
    format('%s declares schedule %s in %s namespaces, and each of them fires: %s', s.declared_by, s.name, count(*),
      left(string_agg(s.namespace, ', ' order by s.namespace), 200)),
    'If this is one application, let its logins share a namespace (holdfast namespaces add) and remove the others.',
    null
  from queues.schedule s
  where s.declared_by is not null and s.orphaned_at is null and s.paused_at is null
  group by s.declared_by, s.name having count(*) > 1
  order by s.name limit 50;
end
$$;

comment on function queues.health_of_schedules(timestamptz) is
  'Checks schedules that are late, invalid, paused or orphaned.';
