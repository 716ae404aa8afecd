-- Returns the settings by which a called function could change what the session of its caller does later: time limits,
-- whether it may write, how it reads and writes values, and what the engine asks. All settings would take a
-- millisecond.
-- Internal.
create or replace function internal.session_settings()
returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array_agg(s.name || ' = ' || coalesce(current_setting(s.name, true), ''))
  from unnest(array[
    'statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout',
    'idle_session_timeout', 'transaction_read_only', 'default_transaction_read_only', 'default_transaction_isolation',
    'default_transaction_deferrable', 'synchronous_commit', 'row_security', 'standard_conforming_strings',
    'backslash_quote', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone', 'bytea_output', 'xmlbinary',
    'extra_float_digits', 'array_nulls', 'transform_null_equals', 'check_function_bodies', 'default_tablespace',
    'temp_tablespaces', 'default_table_access_method', 'application_name', 'holdfast.acting_for', 'holdfast.role',
    'holdfast.quiet', 'holdfast.retention']) s(name)
$$;

comment on function internal.session_settings() is
  'Returns the settings by which a called function could change what the session of its caller does later.';
