-- Returns whether the session may read all tasks; otherwise it may read those of its namespace.
create or replace function queues.may_read_all()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select queues.has_role('reader')
    or queues.has_role('worker')
$$;

comment on function queues.may_read_all() is
  'Returns whether the session may read all tasks; otherwise it may read those of its namespace.';
