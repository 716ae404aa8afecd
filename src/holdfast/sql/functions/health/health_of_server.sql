-- Checks the server: its clock, old snapshots, dead rows, the notification queue, transaction ids, size and growth.
-- Internal: called by health.
create or replace function queues.health_of_server(now timestamptz)
returns setof queues.health_line
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _usage constant double precision := pg_notification_queue_usage();
  _bytes bigint;
  _day_ago queues.sample;
  _growth double precision;
  -- What was written by the same clock and is in its future. Leases and terms are, but no heartbeat and no sample.
  _ahead constant double precision := extract(epoch from greatest(
    (select max(w.last_heartbeat) from queues.worker w), (select max(s.taken_at) from queues.sample s)) - now);
begin
  if _ahead > 15 then
    return next row('clock', 'amber', null, _ahead,
      format('the clock of the database server was set back: the newest heartbeat or sample is %s in its future',
        queues.format_duration(_ahead)),
      'Until the clock is there, silent workers look alive, and times in lists are wrong. Check how the server sets '
      'its clock, and restart the workers.', null)::queues.health_line;
  end if;
  return query
  select 'oldest_snapshot', queues.level_of(s.seconds, 300, 3600), s.kind || ' ' || s.subject, s.seconds,
    format('%s %s%s has held a snapshot for %s: %s', s.kind, s.subject, coalesce(' of ' || s.login, ''),
      queues.format_duration(s.seconds), s.description),
    case when s.seconds < 300 then null
      when s.kind = 'session'
        then format('Dead rows cannot be removed meanwhile. End it in its application, or: select '
          'pg_terminate_backend(%s)', s.subject)
      when s.kind = 'prepared transaction'
        then format('Dead rows cannot be removed meanwhile: commit prepared %L, or roll it back.', s.subject)
      else 'Dead rows cannot be removed meanwhile. Check its standby, or drop the slot.' end, null
  from queues.oldest_snapshots(now) s limit 3;
  if not pg_has_role(current_user, 'pg_read_all_stats', 'usage') then
    return next row('hidden_sessions', 'green', null, null, 'health cannot see what sessions of other logins do',
      format('To see it: grant pg_read_all_stats to %I', current_user), null)::queues.health_line;
  end if;

  return query
  select 'dead_rows', queues.level_of(t.n_dead_tup, greatest(100000, t.n_live_tup),
    greatest(1000000, 10 * t.n_live_tup)), t.relname::text, t.n_dead_tup::double precision,
    format('queues.%s has %s dead rows beside %s live ones', t.relname, t.n_dead_tup, t.n_live_tup),
    case when t.n_dead_tup >= greatest(100000, t.n_live_tup)
      then 'Claims slow down. Look for the oldest snapshot, then whether autovacuum runs: pg_stat_all_tables.' end, null
  from pg_stat_all_tables t
  where t.schemaname = 'queues' and (t.relname in ('ready', 'lease') or t.n_dead_tup >= greatest(100000, t.n_live_tup))
  order by t.relname;

  return query
  select 'notification_queue', queues.level_of(_usage, 0.1, 0.5), 'session ' || holder.pid, _usage,
    format('%s %% of the queue of notifications is in use', round(100 * _usage::numeric, 1))
      || case when _usage > 0.5 then ': Holdfast sends none, so workers, dispatchers and callers poll' else '' end
      || case when holder.pid is null then ''
        else format('; the oldest transaction is that of session %s of %s, for %s', holder.pid, holder.usename,
          queues.format_duration(holder.seconds)) end,
    case when _usage >= 0.1
      then 'A session listens and stays in a transaction. '
        || case when holder.pid is null then format('To see which: grant pg_read_all_stats to %I', current_user)
          else format('End it: select pg_terminate_backend(%s)', holder.pid) end
        || '. Set idle_in_transaction_session_timeout for its login. When the queue is full, commits of other '
        'applications that notify fail.' end, null
  from (values (_usage)) one(used)
  left join lateral (
    -- PostgreSQL does not tell which session listens and how far it has read.
    select a.pid, a.usename, extract(epoch from now - a.xact_start)::double precision as seconds
    from pg_stat_activity a
    where _usage >= 0.1 and a.xact_start is not null and a.backend_type = 'client backend'
      and a.pid <> pg_backend_pid()
    order by a.xact_start limit 1) holder on true;
  return query
  select 'transaction_ids', queues.level_of(greatest(age(d.datfrozenxid), mxid_age(d.datminmxid)), 1e9, 1.6e9), null,
    greatest(age(d.datfrozenxid), mxid_age(d.datminmxid))::double precision,
    format('the oldest transaction id is %s million back, the oldest multixact %s million; at 2100 million the '
      'server stops', age(d.datfrozenxid) / 1000000, mxid_age(d.datminmxid) / 1000000),
    case when greatest(age(d.datfrozenxid), mxid_age(d.datminmxid)) >= 1e9
      then 'Look for the oldest snapshot, let autovacuum run, or: vacuum (freeze)' end, null
  from pg_database d where d.datname = current_database();

  _bytes := queues.total_bytes();
  select s.* into _day_ago from queues.sample s where s.taken_at <= now - interval '1 hour'
  order by abs(extract(epoch from now - interval '1 day' - s.taken_at)) limit 1;
  if found then
    _growth := (_bytes - _day_ago.bytes) * 86400 / extract(epoch from now - _day_ago.taken_at);
  end if;
  return next row('size', 'green', null, _bytes, format('all tables and indexes take %s', pg_size_pretty(_bytes)),
    null, null)::queues.health_line;
  return next row('growth', case when _growth > 1e9 and _growth > _bytes / 2 then 'amber' else 'green' end, null,
    coalesce(_growth, 0),
    case when _growth is null then 'growth is known after a leader has run for an hour'
      else format('they grow by %s per day', pg_size_pretty(_growth::bigint)) end,
    case when _growth > 1e9 and _growth > _bytes / 2
      then 'Keep finished tasks for a shorter time: see retention.' end, null)::queues.health_line;
end
$$;

comment on function queues.health_of_server(timestamptz) is
  'Checks the server: its clock, old snapshots, dead rows, the notification queue, transaction ids, size and growth.';
