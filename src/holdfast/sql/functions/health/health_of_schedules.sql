-- Schedules that are late, cannot be read, or do not fire because nobody wants them to.
create or replace function queues.health_of_schedules(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  select 'late_schedule', queues.level_of(late.seconds, 30, 300), s.name, late.seconds,
    format('schedule %s should have fired %s ago', s.name, queues.in_words(late.seconds)),
    'The leader fires it: look whether anybody leads (holdfast workers), and for duty_failed in its log.'
  from queues.schedule s
  cross join lateral (
    select extract(epoch from now - coalesce(s.next_at, s.plan_after))::double precision as seconds
    where coalesce(s.next_at, s.plan_after) <= now - interval '10 seconds') late
  where s.paused_at is null and s.orphaned_at is null
  order by late.seconds desc limit 50;

  return query
  select case when s.orphaned_at is not null then 'orphaned_schedule' when s.paused_at is not null then 'paused_schedule'
      else 'broken_schedule' end,
    case when s.orphaned_at is null and s.paused_at is null then 'red' else 'amber' end, s.name,
    extract(epoch from now - coalesce(s.orphaned_at, s.paused_at, s.decided_at))::double precision,
    case when s.orphaned_at is not null then format('schedule %s is no longer in the code of %s, and does not fire', s.name, s.declared_by)
      when s.paused_at is not null then format('schedule %s was paused by %s%s', s.name, s.paused_by, coalesce(' because: ' || s.pause_reason, ''))
      else format('schedule %s does not fire: %s', s.name, left(s.problem, 200)) end,
    case when s.orphaned_at is not null then format('If nobody wants it: holdfast schedules remove %s', s.name)
      when s.paused_at is not null then format('If that is over: holdfast schedules resume %s', s.name)
      else 'Mend it in the code, or remove it and add it again.' end
  from queues.schedule s
  where s.orphaned_at is not null or s.paused_at is not null or s.problem is not null
  order by s.name limit 100;
end
$$;

comment on function queues.health_of_schedules(timestamptz) is
  'Schedules that are late, cannot be read, or do not fire because nobody wants them to.';
