-- Explains which worker holds a task, and whether that worker still sends heartbeats.
-- Internal: called by explain.
create or replace function queues.explain_hold(
  status text, worker_id text, lease_until timestamptz, attempt integer, max_attempts integer, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('%s leased by worker %s until %s (attempt %s of %s)%s.',
    case when w.silent is null and lease_until >= now
      then case when status = 'running' then 'It is running,' else 'It is claimed and about to run,' end
      else case when status = 'running' then 'It was running at the last heartbeat,' else 'It is claimed,' end end,
    explain_hold.worker_id, date_trunc('second', lease_until), attempt, max_attempts,
    case when lease_until < now then '; the lease has ended, so the next sweep makes it ready again'
      when w.is_dead then format('; that worker has been silent for %s, so the leader will recover it', w.silent)
      when w.silent is not null
      then format('; that worker has been silent for %s: if it stays silent, other workers get the task at %s',
        w.silent, date_trunc('second', w.recovered_at))
      else '' end)
  from (select 1) one
  left join lateral (
    select queues.format_duration(extract(epoch from now - w.last_heartbeat)::double precision) as silent,
      w.last_heartbeat <= now - w.timeout as is_dead, least(lease_until, w.last_heartbeat + w.timeout) as recovered_at
    from queues.worker w
    where w.worker_id = explain_hold.worker_id
      and w.last_heartbeat <= now - least(w.timeout, 2 * w.heartbeat)) w on true
$$;

comment on function queues.explain_hold(text, text, timestamptz, integer, integer, timestamptz) is
  'Explains which worker holds a task, and whether that worker still sends heartbeats.';
