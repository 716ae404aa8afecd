-- Whether a worker keeps the door of a queue: it finds what comes, and tells the others. A door that is kept for longer than one
-- may ask for is left over from before the clock was set back. Locks: none.
create or replace function queues.is_kept(queue text, now timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from queues.door d
    where d.queue = is_kept.queue and d.kept_until > is_kept.now and d.kept_until <= is_kept.now + interval '1 second')
$$;

comment on function queues.is_kept(text, timestamptz) is 'Whether a worker keeps the door of a queue: it finds what comes, and tells the others.';
