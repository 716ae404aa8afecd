-- Ends a session and returns whether it existed.
-- For holdfast_operator. Locks: the session's row.
create or replace function queues.close_session(session_hash bytea)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _token_id bigint;
begin
  delete from queues.access_session s where s.session_hash = close_session.session_hash
  returning s.token_id into _token_id;
  if not found then
    return false;
  end if;
  insert into queues.access_act (act, occurred_at, actor, token_id)
  select 'logged_out', queues.clock(), session_user || ' for ' || t.name, _token_id
  from queues.access_token t where t.token_id = _token_id;
  return true;
end
$$;

comment on function queues.close_session(bytea) is 'Ends a session and returns whether it existed.';
