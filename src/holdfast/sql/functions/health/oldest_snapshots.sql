-- Returns what keeps dead rows from being removed: sessions, prepared transactions and replication slots. The oldest
-- comes first. Without pg_read_all_stats, the owner cannot see what a session does and since when; the age then comes
-- from the samples.
-- Internal.
create or replace function queues.oldest_snapshots(now timestamptz)
returns table (kind text, subject text, login text, seconds double precision, description text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select held.kind, held.subject, held.login,
    greatest(0, coalesce(extract(epoch from now - held.since)::double precision,
    queues.snapshot_age(held.transactions, now))) as seconds, held.description
  from (
    select 'session' as kind, a.pid::text as subject, a.usename::text as login, a.xact_start as since,
      greatest(age(a.backend_xmin), age(a.backend_xid))::bigint as transactions,
      -- Not its query, which contains values.
      coalesce(a.state, 'doing what is hidden') as description
    from pg_stat_activity a
    where (a.datname = current_database() or a.datname is null) and a.pid <> pg_backend_pid()
      and a.usename is not null and coalesce(a.backend_xmin, a.backend_xid) is not null
    union all
    select 'prepared transaction', p.gid, p.owner::text, p.prepared, age(p.transaction)::bigint,
      'prepared and not committed'
    from pg_prepared_xacts p where p.database = current_database()
    union all
    select 'replication slot', s.slot_name::text, null, null, greatest(age(s.xmin), age(s.catalog_xmin))::bigint,
      case when s.active then 'in use by pid ' || s.active_pid else 'not in use' end
    from pg_replication_slots s where s.xmin is not null) held
  order by seconds desc
$$;

comment on function queues.oldest_snapshots(timestamptz) is
  'Returns what keeps dead rows from being removed: sessions, prepared transactions and replication slots.';
