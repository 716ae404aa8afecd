-- Returns whether the session may read all tasks; otherwise it may read those of its namespace.
create or replace function queues.may_read_all()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select pg_has_role(session_user, 'holdfast_reader', 'member')
    or pg_has_role(session_user, 'holdfast_worker', 'member')
$$;

comment on function queues.may_read_all() is
  'Returns whether the session may read all tasks; otherwise it may read those of its namespace.';
