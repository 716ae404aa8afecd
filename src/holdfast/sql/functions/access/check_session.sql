-- Returns the owner and the scopes of a session; no row if it is unknown or expired, or if its token is.
-- For holdfast_operator. Locks: the session's row, at most once a minute, without waiting.
create or replace function queues.check_session(session_hash bytea)
returns table (token_id bigint, name text, scopes text[], expires_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
begin
  update queues.access_session s set last_seen_at = _now
  where s.session_hash in (
    select e.session_hash from queues.access_session e
    where e.session_hash = check_session.session_hash and e.last_seen_at < _now - interval '1 minute'
    for no key update skip locked);
  return query
  select t.token_id, t.name, t.scopes, least(s.expires_at, t.expires_at)
  from queues.access_session s join queues.access_token t on t.token_id = s.token_id
  where s.session_hash = check_session.session_hash and s.expires_at > _now and t.revoked_at is null
    and t.expires_at > _now;
end
$$;

comment on function queues.check_session(bytea) is
  'Returns the owner and the scopes of a session; no row if it is unknown or expired, or if its token is.';
