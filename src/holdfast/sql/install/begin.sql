-- A separate statement removes the login's timeouts, because a statement_timeout counts from the start of its
-- statement.
do $$
begin
  perform pg_catalog.set_config(s.name, '0', true)
  from pg_catalog.pg_settings s
  where s.name in ('lock_timeout', 'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout');
end
$$;

do $$
begin
  if pg_catalog.current_setting('server_version_num')::integer < 150000 then
    raise exception using message = pg_catalog.format(
      'PostgreSQL 15 or later is needed, and this is %s.', pg_catalog.current_setting('server_version'));
  end if;
end
$$;
