-- Checks silent and lost workers, the leader, whether ended leases are swept and chores are done, and types that no
-- live worker handles.
-- Internal: called by health.
create or replace function queues.health_of_workers(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  _live bigint := (select count(*) from queues.worker w where w.last_heartbeat > now - w.timeout);
  _led boolean := exists (select from queues.leadership l where l.leader_until >= now);
  _expired bigint;
  _first timestamptz;
  _chores bigint;
  _problem text;
begin
  return next row('workers', 'green', null, _live,
    format('%s live worker%s', _live, case _live when 1 then '' else 's' end),
    case when _live = 0 then 'Start one: holdfast worker' end, null)::queues.health_line;
  if _live > 0 and not _led then
    return next row('leader', 'amber', null, 0,
      'there is no leader: schedules do not fire, and silent workers are not removed before their leases end',
      'Look for lead_refused and duty_failed in the logs of the workers.', null)::queues.health_line;
  end if;

  select count(*), min(e.lease_until) into _expired, _first
  -- Of the pages that one sweep reads.
  from (
    select l.lease_until from queues.lease l where l.ctid < '(32768,0)' and l.lease_until < now limit 1000) e;
  return next row('expired_leases',
    case when _expired = 0 then 'green'
      else queues.level_of(extract(epoch from now - _first)::double precision, 10, 60) end,
    null, _expired, case when _expired = 0 then 'no lease has ended without a report'
      else format('%s%s lease%s ended without a report, the first %s ago', _expired,
        case when _expired = 1000 then ' or more' else '' end,
        case _expired when 1 then '' else 's' end,
          queues.format_duration(extract(epoch from now - _first)::double precision)) end,
    case when _expired > 0 then 'Any worker sweeps them: start one, or call queues.sweep().' end,
    null)::queues.health_line;

  select count(*), min(c.added_at), min(c.error) into _chores, _first, _problem
  from (select c.added_at, c.error from queues.chore c where c.kind in ('c', 'w') limit 1000) c;
  return next row('chores',
    case when _chores = 0 then 'green'
      else queues.level_of(extract(epoch from now - _first)::double precision, 10, 60) end,
    null, _chores, case when _chores = 0 then 'the engine has nothing left to do'
      else format('%s%s chore%s of the engine (runs to wake, tasks to cancel) wait%s, the first for %s', _chores,
        case when _chores = 1000 then ' or more' else '' end, case _chores when 1 then '' else 's' end,
        case _chores when 1 then 's' else '' end,
        queues.format_duration(extract(epoch from now - _first)::double precision)) end,
    case when _problem is not null
        then 'Some failed, and are tried again after the others. Repair what the error names.'
      when _chores > 0 then 'The leader does them. Look for a transaction that stays open and holds such a task, and '
        'for chore_failed in the logs of the workers.' end, _problem)::queues.health_line;

  return query
  select 'silent_worker', 'red', w.worker_id, extract(epoch from now - w.last_heartbeat)::double precision,
    format('worker %s on %s (pid %s) has been silent for %s, and held %s task%s at its last heartbeat',
      w.worker_id, w.hostname, coalesce(w.pid::text, 'unknown'),
      queues.format_duration(extract(epoch from now - w.last_heartbeat)::double precision), w.in_flight,
      case w.in_flight when 1 then '' else 's' end),
    'The leader recovers its tasks and removes it. If it stays, check whether there is a leader, and see its log.', null
  from queues.worker w where w.last_heartbeat <= now - w.timeout order by w.last_heartbeat limit 50;

  return query
  select 'late_worker', 'amber', w.worker_id, extract(epoch from now - w.last_heartbeat)::double precision,
    format('worker %s on %s (pid %s) sends a heartbeat every %s, and the last one came %s ago; it held %s task%s '
      'then', w.worker_id, w.hostname, coalesce(w.pid::text, 'unknown'),
      queues.format_duration(extract(epoch from w.heartbeat)::double precision),
      queues.format_duration(extract(epoch from now - w.last_heartbeat)::double precision), w.in_flight,
      case w.in_flight when 1 then '' else 's' end),
    format('Check whether it still runs. After %s of silence, other workers get its tasks.',
      queues.format_duration(extract(epoch from w.timeout)::double precision)), null
  from queues.worker w
  where w.last_heartbeat <= now - 2 * w.heartbeat - interval '1 second' and w.last_heartbeat > now - w.timeout
  order by w.last_heartbeat limit 50;

  return query
  select 'no_handler', 'amber', t.type, count(*)::double precision,
    format('no live worker has a handler for %s: %s task%s postponed within the last ten minutes', t.type, count(*),
      case count(*) when 1 then ' was' else 's were' end),
    'Start a worker with the application that declares it; else they fail. If the name is wrong, cancel them.', null
  from (
    -- Of the latest acts only, so that the cost is bounded.
    select distinct a.task_id from (select a.* from queues.act a order by a.act_id desc limit 1000) a
    where a.act = 'snoozed' and a.data ->> 'kind' = 'no_handler_registered'
      and a.occurred_at > now - interval '10 minutes') a
  join queues.ready r on r.task_id = a.task_id
  join queues.task t on t.task_id = a.task_id
  where not exists (
    select from queues.worker w where w.last_heartbeat > now - w.timeout and t.type = any (w.types))
  group by t.type order by t.type limit 50;

  return query
  select 'lost_worker', 'amber', l.worker_id, extract(epoch from now - l.lost_at)::double precision,
    format('worker %s on %s was lost %s ago; %s of its tasks went back to the queue, and %s ended',
      l.worker_id, l.hostname, queues.format_duration(extract(epoch from now - l.lost_at)::double precision),
      l.recovered, l.dead),
    'Find out why it ended: its log, the memory of its machine, the limits of its container.', null
  from queues.loss l where l.lost_at > now - interval '1 hour' order by l.lost_at desc limit 50;
end
$$;

comment on function queues.health_of_workers(timestamptz) is
  'Checks silent and lost workers, the leader, leases to sweep, chores, and types that no worker handles.';
