-- Opens a session with a token, by the hash of the session. Returns the same row as check_token; no row if the token is
-- invalid. A session ends with its token.
-- For holdfast_operator. Locks: expired sessions, skipping those that other transactions remove.
create or replace function queues.open_session(
  token_hash bytea, session_hash bytea, ttl interval default '12 hours', address text default null)
returns table (token_id bigint, name text, scopes text[], expires_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  _now constant timestamptz := queues.clock();
  _token record;
begin
  if session_hash is null or length(session_hash) <> 32 then
    raise exception using errcode = 'QF400', message = 'session_hash must be a SHA-256 of 32 bytes';
  elsif ttl is null or ttl not between interval '1 minute' and interval '30 days' then
    raise exception using errcode = 'QF400', message = 'ttl must be between 1 minute and 30 days';
  end if;
  delete from queues.access_session s
  where s.session_hash in (
    select e.session_hash from queues.access_session e where e.expires_at < _now limit 100 for update skip locked);
  select c.* into _token from queues.check_token(token_hash) c;
  if not found then
    insert into queues.access_act (act, occurred_at, actor, address)
    values ('login_refused', _now, queues.actor(), left(address, 200));
    return;
  end if;
  insert into queues.access_session (session_hash, token_id, opened_at, last_seen_at, expires_at)
  values (session_hash, _token.token_id, _now, _now, _now + ttl);  -- check_session also checks the token's expiry
  insert into queues.access_act (act, occurred_at, actor, token_id, address)
  values ('logged_in', _now, session_user || ' for ' || _token.name, _token.token_id, left(address, 200));
  return query select _token.token_id, _token.name, _token.scopes, least(_now + ttl, _token.expires_at);
end
$$;

comment on function queues.open_session(bytea, bytea, interval, text) is
  'Opens a session with a token. Returns the same row as check_token; no row if the token is invalid.';
