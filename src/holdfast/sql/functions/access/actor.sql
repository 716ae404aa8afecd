-- Who acts: the login, and for whom, if it says so. The login cannot be forged; the rest is the login's own word, as a web server has it
-- for the people who use it.
create or replace function queues.actor()
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select session_user || coalesce(' for ' || nullif(left(current_setting('holdfast.acting_for', true), 200), ''), '')
$$;

comment on function queues.actor() is 'Who acts: the login, and for whom, if it says so.';
