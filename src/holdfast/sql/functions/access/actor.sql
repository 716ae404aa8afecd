-- Returns who acts: the login, and the person or program that the login says it acts for. The login cannot be forged;
-- the rest is a statement of the login, such as a web server that acts for its users. A function of a process acts as
-- whoever has it called, whatever it states itself.
create or replace function queues.actor()
returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((internal.current_call()).actor,
    session_user || coalesce(' for ' || nullif(left(current_setting('holdfast.acting_for', true), 200), ''), ''))
$$;

comment on function queues.actor() is
  'Returns who acts: the login, and the person or program that it says it acts for.';
