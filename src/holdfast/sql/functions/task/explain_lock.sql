-- Explains which open transaction has locked a waiting task, so that claims skip it; null if none has.
-- Internal: called by explain.
create or replace function queues.explain_lock(task_id uuid, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('It is due, but session %s of login %s has changed or locked it in a transaction that has been open '
    'for %s. Claims skip it until that ends: end it in its application, or: select pg_terminate_backend(%s)',
    a.pid, a.usename, queues.format_duration(coalesce(extract(epoch from now - a.xact_start)::double precision,
      queues.snapshot_age(age(r.xmax)::bigint, now))), a.pid)
  from queues.ready r
  join pg_locks l on l.locktype = 'transactionid' and l.transactionid = r.xmax and l.granted
  join pg_stat_activity a on a.pid = l.pid
  where r.task_id = explain_lock.task_id and r.xmax <> '0'::xid
  limit 1
$$;

comment on function queues.explain_lock(uuid, timestamptz) is
  'Explains which open transaction has locked a waiting task, so that claims skip it; null if none has.';
