-- Returns whether the transaction may notify. Every login may fill the queue of notifications, which the whole server
-- shares, by listening in an open transaction; when it is full, every commit that notifies fails. All notifications of
-- the engine are hints, so none is sent while more than half of the queue is in use: who misses one polls. A session
-- that has to prepare its transaction (Citus) sets holdfast.quiet, because PostgreSQL cannot prepare one that has
-- notified. Call it last, once it is known that somebody waits: it takes the lock of the queue, as a notification
-- does.
-- Internal. No pinned path, so that PostgreSQL can inline it.
create or replace function queues.may_notify()
returns boolean
language sql volatile
as $$ select coalesce(pg_catalog.current_setting('holdfast.quiet', true), '') <> 'on'
  and pg_catalog.pg_notification_queue_usage() <= 0.5 $$;

comment on function queues.may_notify() is
  'Returns whether the transaction may notify: not if more than half of the queue of notifications is in use.';
