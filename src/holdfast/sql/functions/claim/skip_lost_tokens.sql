-- Skips tokens that a crash may have made the server forget. Skips more than are ever issued between two flushes of the
-- log. The commit waits for the disk, because a second crash must not undo the skip.
-- Internal: called by claim when queues.crash_detector has no row. Locks: that row; waits for a claim that does
-- the same.
create or replace function queues.skip_lost_tokens()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  -- A claim that waited here finds the row, and the skipped tokens are on disk.
  insert into queues.crash_detector default values on conflict do nothing;
  if found then
    perform queues.commit_to_disk();
    perform setval('queues.token', nextval('queues.token') + 1000000000);
  end if;
end
$$;

comment on function queues.skip_lost_tokens() is 'Skips tokens that a crash may have made the server forget.';
