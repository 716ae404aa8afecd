-- Returns whether a worker currently throttles the wake-ups of a queue. A row that lasts longer than allowed is left
-- over from before the clock was set back.
-- Internal. Locks: none.
create or replace function queues.is_kept(queue text, now timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from queues.door d
    where d.queue = is_kept.queue and d.kept_until > is_kept.now and d.kept_until <= is_kept.now + interval '1 second')
$$;

comment on function queues.is_kept(text, timestamptz) is
  'Returns whether a worker currently throttles the wake-ups of a queue.';
