-- Skips the tokens that a crash may have made the server forget: more than are ever issued between two writes to the
-- disk. This time the commit waits for it, because a second crash must not forget the skip.
-- Behind claim, when queues.unbroken has lost its row. Locks: that row; waits for a claim that is about the same.
create or replace function queues.skip_lost_tokens()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  -- Whoever waited here finds the row, and the tokens skipped on disk.
  insert into queues.unbroken default values on conflict do nothing;
  if found then
    perform set_config('synchronous_commit', 'on', true);
    perform setval('queues.token', nextval('queues.token') + 1000000000);
  end if;
end
$$;

comment on function queues.skip_lost_tokens() is 'Skips the tokens that a crash may have made the server forget.';
