-- Explains which worker holds a task, and whether that worker is live.
-- Internal: called by explain.
create or replace function queues.explain_hold(
  status text, worker_id text, lease_until timestamptz, attempt integer, max_attempts integer, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('%s leased by worker %s until %s (attempt %s of %s)%s.',
    case when status = 'running' then 'It is running,' else 'It is claimed and about to run,' end,
    explain_hold.worker_id, lease_until, attempt, max_attempts,
    case when lease_until < now then '; the lease has ended, so the next sweep makes it ready again'
      else coalesce((
        select format('; that worker has been silent for %s, so the leader will recover it',
          queues.format_duration(extract(epoch from now - w.last_heartbeat)::double precision))
        from queues.worker w where w.worker_id = explain_hold.worker_id and w.last_heartbeat <= now - w.timeout),
          '') end)
$$;

comment on function queues.explain_hold(text, text, timestamptz, integer, integer, timestamptz) is
  'Explains which worker holds a task, and whether that worker is live.';
