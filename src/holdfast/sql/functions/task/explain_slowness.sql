-- Explains what slows claims down if a task has been due for a minute and dead rows cannot be removed; else null.
-- Internal: called by explain.
create or replace function queues.explain_slowness(run_at timestamptz, now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('Claims may be slow: %s %s%s has held a snapshot for %s, which keeps %s dead rows from being '
    'removed.', s.kind, s.subject, coalesce(' of ' || s.login, ''), queues.format_duration(s.seconds), t.n_dead_tup)
  from pg_stat_all_tables t
  cross join lateral (select s.* from queues.oldest_snapshots(now) s where s.seconds >= 300 limit 1) s
  where run_at < now - interval '1 minute' and t.relid = 'queues.ready'::regclass and t.n_dead_tup >= 100000
$$;

comment on function queues.explain_slowness(timestamptz, timestamptz) is
  'Explains what slows claims down if a task has been due for a minute and dead rows cannot be removed; else null.';
