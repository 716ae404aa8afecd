-- Returns since when workers reach this database. Workers sweep every second, so after a longer gap it was away, or
-- there was no worker: those that live need a moment to come back, and are not late before.
-- Internal: called by sweep and recover_workers. Locks: none.
create or replace function queues.reachable_since(now timestamptz)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((
    select s.reachable_since from queues.last_sweep s
    -- A later sweep was made before the clock was set back.
    where s.swept_at between now - interval '5 seconds' and now + interval '1 second'
      -- If the one before it was the first after a gap, too, then sweeps are rare, and tell nothing.
      or s.swept_at = s.reachable_since), now)
$$;

comment on function queues.reachable_since(timestamptz) is 'Returns since when workers reach this database.';
