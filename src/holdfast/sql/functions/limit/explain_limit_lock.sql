-- Explains which open transaction keeps claims from counting a limit; null if none does.
-- Internal.
create or replace function queues.explain_limit_lock(lock integer, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('session %s of login %s has claimed under its limit, or changed it, in a transaction that has '
    'been open for %s; nothing else is claimed under it until that ends (end it in its application, or: select '
    'pg_terminate_backend(%s))',
    h.pid, h.login, queues.format_duration(h.seconds), h.pid)
  from queues.held_limit_locks(now) h where h.lock = explain_limit_lock.lock
  limit 1
$$;

comment on function queues.explain_limit_lock(integer, timestamptz) is
  'Explains which open transaction keeps claims from counting a limit; null if none does.';
