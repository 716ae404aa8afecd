-- Returns whether a worker currently throttles the wake-ups of a queue. A row that lasts longer than allowed is left
-- over from before the clock was set back.
-- Internal. Locks: none.
create or replace function queues.are_wakeups_held(queue text, now timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from queues.wakeup_throttle d
    where d.queue = are_wakeups_held.queue and d.kept_until > are_wakeups_held.now
      and d.kept_until <= are_wakeups_held.now + interval '1 second')
$$;

comment on function queues.are_wakeups_held(text, timestamptz) is
  'Returns whether a worker currently throttles the wake-ups of a queue.';
